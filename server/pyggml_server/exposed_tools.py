"""Whether the built-in tools may be served: they run commands for everybody who can connect. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence


class ExposedToolsError(Exception):
    """A start that would let anybody on the network run commands here; the message says what to do."""


def refuse_exposed_tools(hostnames: Sequence[str], api_keys: Sequence[str]) -> None:
    """Raises ExposedToolsError where another machine could call the tools without a key."""
    open_hosts = [] if api_keys else [name for name in hostnames if not is_of_this_machine(name)]
    if open_hosts:
        raise ExposedToolsError(
            f"error: --tools with --host {open_hosts[0]} and no API key lets anybody on the network run commands here; "
            "set --api-key, listen on 127.0.0.1, or add --tools-exposed if that is what you want"
        )


def is_of_this_machine(hostname: str) -> bool:
    """Whether only programs of this machine can connect to it: a socket file, or a loopback address."""
    if hostname.endswith(".sock") or hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False
