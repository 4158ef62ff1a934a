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
GREETING = "I'm glad to hear"  # what the model says to "Hi" with this template, greedily, in five tokens
CITIES = ("Rome", "Oslo")  # it asks for the weather of both
WEATHER: dict[str, object] = {"type": "object", "properties": {"city": {"enum": list(CITIES)}}, "required": ["city"]}
QUESTION = "Rain in Rome?"
TOO_LONG = "long " * 900
TOO_LONG_MESSAGE = r"exceeds the available context size \(512 tokens\)"


def is_missing(why: str) -> NoReturn:
    """Skip the test, or fail it where every client has to be there."""
    if os.environ.get("PYGGML_TEST_CLIENTS") == "required":
        pytest.fail(why)
    pytest.skip(why)
