"""The server that most tests of the web side use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.running import Running, running


@pytest.fixture
def server() -> Iterator[Running]:
    """A server with default settings and a loaded model."""
    with running() as started:
        yield started
