"""Built-in tools are not served to everybody on the network, unless that is said twice."""

from __future__ import annotations

import pytest
from pyggml_server.exposed_tools import ExposedToolsError, is_of_this_machine, refuse_exposed_tools

LOCAL = ("127.0.0.1", "127.1.2.3", "localhost", "::1", "/run/server.sock")
OPEN = ("0.0.0.0", "::", "192.168.1.5", "myhost", "localhost.example")


@pytest.mark.parametrize("hostname", LOCAL)
def test_programs_of_this_machine_may_use_tools_without_a_key(hostname: str) -> None:
    assert is_of_this_machine(hostname)
    refuse_exposed_tools((hostname,), ())


@pytest.mark.parametrize("hostname", OPEN)
def test_others_need_a_key(hostname: str) -> None:
    with pytest.raises(ExposedToolsError, match=f"--host {hostname} and no API key.* --tools-exposed"):
        refuse_exposed_tools(("127.0.0.1", hostname), ())
    refuse_exposed_tools((hostname,), ("key",))
