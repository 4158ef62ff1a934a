"""The pytest plugin that llama-server's own tests run with, inside their process: local models, a time limit, a report.

Loaded with `-p tests.upstream.plugin` from the tests' folder in the tree, which stays as it is. The suite's module
`utils` starts the servers; here its class looks up local files first, and a test whose model is not there is skipped.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.local_hub import PRESETS
from tests.upstream.local_models import EYES, SEEING, local_file
from tests.vision_models import png_of

REPORT_VARIABLE = "PYGGML_SUITE_REPORT"
TEST_LIMIT_S = 240
# These start a server without a model, a router, only to have nothing to load. They test tools, so here their server
# has a model: a router is another program.
TESTS_OF_TOOLS = ("unit/test_tools_builtin.py", "unit/test_mcp_servers.py")
ANY_MODEL = "ggml-org/models/tinyllamas/stories260K.gguf"
# These count the tokens of texts that have to go on: SmolLM2 ends one of them after 89 of 90.
TESTS_OF_LENGTHS = ("unit/test_completion.py::test_completion_unified",)
ENDLESS_MODEL = "ggml-org/stories15M_MOE/stories15M_MOE-F16.gguf"


def pytest_load_initial_conftests() -> None:
    """The suite imports `wget` for downloads, of which there are none. The path that led here is not the servers'."""
    sys.modules.setdefault("wget", types.ModuleType("wget"))
    os.environ.pop("PYTHONPATH", None)


def pytest_configure() -> None:
    """Point the suite's helpers at local files, before its tests are imported."""
    import utils  # type: ignore[import-not-found]  # the suite's own

    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.download_file = _local_download
    utils.ServerProcess.start = _with_local_model(utils.ServerProcess.start)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hub's images, which a test looks up by a name of its own, are two coloured squares, in the body itself."""
    for item in items:
        module = getattr(item, "module", None)
        if hasattr(module, "get_img_url"):
            module.get_img_url = _local_image  # type: ignore[union-attr]


def _local_image(name: str) -> str:
    if not name.startswith("IMG_"):
        return name
    colour = b"\xff\0\0" if name.endswith("0") else b"\0\0\xff"
    data = base64.b64encode(png_of(32, 32, (b"\0" + colour * 32) * 32)).decode()
    return data if name.startswith("IMG_BASE64_") and "URI" not in name else f"data:image/png;base64,{data}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """End a test that a server keeps waiting."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(TEST_LIMIT_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One JSON line per finished phase that says something about its test."""
    if report.when != "call" and report.outcome == "passed":
        return
    line = {"test": report.nodeid, "outcome": report.outcome, "why": _reason(report)}
    with Path(os.environ[REPORT_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr or "").strip()[:500]


def _give_up(_number: int, _frame: object) -> None:
    raise TimeoutError(f"the test took more than {TEST_LIMIT_S} s")


def _local_download(url: str, _output_file_path: str | None = None) -> str:
    return str(_found(url.rsplit("/", 1)[-1]))


def _with_local_model(start: Callable[..., None]) -> Callable[..., None]:
    def start_with_local_model(server: Any, *arguments: Any, **options: Any) -> None:
        if (name := _model_of(server)) is not None:
            server.model_file = str(_found(name))
            server.model_hf_repo = server.model_hf_file = None
            server.offline = False
        os.environ.pop("LLAMA_ARG_MMPROJ", None)
        if name == SEEING:
            os.environ["LLAMA_ARG_MMPROJ"] = str(_found(EYES))
        start(server, *arguments, **options)

    return start_with_local_model


def _model_of(server: Any) -> str | None:
    """The hub's name of the model that a local file stands for; None where the test wants none, or has its own."""
    test = os.environ["PYTEST_CURRENT_TEST"]
    if test.startswith(TESTS_OF_LENGTHS):
        return ENDLESS_MODEL
    if server.model_hf_repo and server.model_hf_repo != PRESETS:
        return "/".join(filter(None, (server.model_hf_repo, server.model_hf_file)))
    if not server.model_file and test.startswith(TESTS_OF_TOOLS):
        return ANY_MODEL
    return None


def _found(name: str) -> Path:
    path = local_file(name)
    if path is None:
        pytest.skip(f"no local file stands for {name}")
    return path
