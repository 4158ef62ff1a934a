"""The look-alikes, for each test afresh, and the file of their certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.download import look_alike
from tests.download.look_alike import Hub, Proxy, Registry


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def authority_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return look_alike.authority_file(authority, tmp_path_factory.mktemp("authority"))


@pytest.fixture
def hub(authority: trustme.CA) -> Iterator[Hub]:
    with look_alike.hub(authority) as started:
        yield started


@pytest.fixture
def registry(authority: trustme.CA) -> Iterator[Registry]:
    started = Registry(authority)
    yield started
    started.stop()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    started = Proxy()
    yield started
    started.stop()
