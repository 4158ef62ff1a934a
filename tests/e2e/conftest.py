"""The running servers that the end-to-end tests share, and their logs with each failure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest

from tests.download.conftest import authority, authority_file, hub, proxy, registry  # noqa: F401
from tests.e2e.clients import FLAGS, KEY
from tests.e2e.program import (
    REPOSITORY,
    ServerProcess,
    free_port,
    our_program,
    stock_program,
)
from tests.native.short_model import shorten

TEMPLATES = REPOSITORY / "vendor/ggml/llama.cpp/models/templates"
StartServer = Callable[..., contextlib.AbstractContextManager[ServerProcess]]


def server_flags(model: Path) -> list[str]:
    """Four slots over 512 cells. One thread, so that two servers and the tests do not fight for two cores."""
    size = ["-c", "512", "-np", "4", "--kv-unified", "-fa", "on", "-t", "1"]
    return [
        "-m",
        str(model),
        "--port",
        "0",
        *size,
        "--metrics",
        "--slots",
        "--no-warmup",
        "-fit",
        "off",
        "--cache-ram",
        "0",
    ]


@pytest.fixture(scope="session")
def small_models(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models: one layer and two layers of SmolLM2."""
    folder = tmp_path_factory.mktemp("models")
    for name, n_layers in ("one", 1), ("two", 2):
        shorten(smollm2_path, folder / f"{name}.gguf", n_layers)
    return folder


@contextlib.contextmanager
def running(program: Path, flags: list[str], environment: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    """A started server that is ended after its use, and must end well."""
    server = ServerProcess([program, *flags], environment).wait_until_ready()
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    server.end()


@contextlib.contextmanager
def loading_for_ever(program: Path, model: Path, folder: Path) -> Iterator[ServerProcess]:
    """A server that waits for an adapter, which nobody writes into its pipe."""
    os.mkfifo(folder / "adapter.gguf")
    port = free_port()
    flags = [*server_flags(model), "--port", str(port), "--lora", str(folder / "adapter.gguf"), "--api-key", KEY]
    server = ServerProcess([program, *flags])
    server.url = f"http://127.0.0.1:{port}"
    try:
        assert server.answer_once_it_listens("/health").status_code == 503
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def ours(smollm2_path: Path) -> Iterator[ServerProcess]:
    """pyggml-server, shared by every test that leaves it as it was."""
    with running(our_program(), server_flags(smollm2_path)) as server:
        yield server


@pytest.fixture(scope="session")
def stock(smollm2_path: Path) -> Iterator[ServerProcess]:
    """llama-server of the same tree with the same flags."""
    with running(stock_program(), server_flags(smollm2_path)) as server:
        yield server


@pytest.fixture(scope="session")
def start_ours(smollm2_path: Path) -> StartServer:
    """Starts one more pyggml-server: `with start_ours("--flag", VARIABLE="value") as server`."""

    def start(*flags: str, **environment: str) -> contextlib.AbstractContextManager[ServerProcess]:
        return running(our_program(), [*server_flags(smollm2_path), *flags], environment)

    return start


@pytest.fixture(scope="session")
def start_stock(smollm2_path: Path) -> StartServer:
    """Starts one more llama-server."""

    def start(*flags: str, **environment: str) -> contextlib.AbstractContextManager[ServerProcess]:
        return running(stock_program(), [*server_flags(smollm2_path), *flags], environment)

    return start


@pytest.fixture(scope="session")
def qwen(start_ours: StartServer) -> Iterator[ServerProcess]:
    """pyggml-server with a template that writes calls of tools as JSON between tags."""
    with start_ours("-c", "4096", "--chat-template-file", str(TEMPLATES / "Qwen-Qwen3-0.6B.jinja")) as server:
        yield server


@pytest.fixture(scope="session")
def keyed(start_ours: StartServer) -> Iterator[ServerProcess]:
    """The server of the tests of real clients: its template writes calls of tools, and it asks for an API key."""
    with start_ours(*FLAGS) as server:
        yield server


@pytest.fixture(scope="session")
def keyed_stock(start_stock: StartServer) -> Iterator[ServerProcess]:
    """llama-server with the same flags."""
    with start_stock(*FLAGS) as server:
        yield server


@pytest.fixture(scope="session")
def loading(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """pyggml-server that loads its model for ever."""
    with loading_for_ever(our_program(), smollm2_path, tmp_path_factory.mktemp("ours")) as server:
        yield server


@pytest.fixture(scope="session")
def loading_stock(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """llama-server that does."""
    with loading_for_ever(stock_program(), smollm2_path, tmp_path_factory.mktemp("stock")) as server:
        yield server


@pytest.fixture(scope="session")
def thinker(start_ours: StartServer) -> Iterator[ServerProcess]:
    """pyggml-server with a template that opens a block of reasoning."""
    name = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja"
    with start_ours("-c", "4096", "--chat-template-file", str(TEMPLATES / name)) as server:
        yield server


@pytest.fixture(scope="session")
def tight(start_ours: StartServer) -> Iterator[ServerProcess]:
    """pyggml-server that ends requests with an error in the middle of their streams: two chats overflow its pool."""
    with start_ours("-c", "256", "-np", "2", "--preempt-ram", "0") as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the log of every server that a failed test used."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, ServerProcess):
                report.sections.append((f"log of {name}", value.log()))
    return report
