"""What the tests of real clients share: the flags of their server (`keyed`), and what its model says.

Heavy clients are fetched by the tests themselves. Where one cannot be, its tests are skipped. They fail if
PYGGML_TEST_CLIENTS=required.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.e2e.program import REPOSITORY

KEY = "sesame"
# this template's answers are parsed for calls; the model begins one only if the answer is begun for it
OPENING = "<tool_call>"
FLAGS = (
    "--chat-template-file",
    str(REPOSITORY / "vendor/ggml/llama.cpp/models/templates/Qwen-Qwen3-0.6B.jinja"),
    "--api-key",
    KEY,
)
# greedily the model answers this with that, in five tokens without a near tie; to "Hi" it begins in one of two ways
HELLO = "What is the capital of France?"
GREETING = "The capital of France is"
CITIES = ("Rome", "Oslo")  # it asks for the weather of both
WEATHER: dict[str, object] = {"type": "object", "properties": {"city": {"enum": list(CITIES)}}, "required": ["city"]}
QUESTION = "Rain in Rome, then rain in Oslo?"
TOO_LONG = "long " * 900
TOO_LONG_MESSAGE = r"exceeds the available context size \(512 tokens\)"


def is_missing(why: str) -> NoReturn:
    """Skip the test, or fail it where every client has to be there."""
    if os.environ.get("PYGGML_TEST_CLIENTS") == "required":
        pytest.fail(why)
    pytest.skip(why)
