"""The limit on nesting: deep JSON is refused before llama.cpp walks it by recursion."""

from __future__ import annotations

import json

import pytest
from pyggml_server.web.body import MAX_NESTING, is_too_deep


def nested(n_levels: int) -> bytes:
    return b'{"items":' * n_levels + b"1" + b"}" * n_levels


@pytest.mark.parametrize("n_levels", [1, MAX_NESTING, MAX_NESTING + 1, 100_000])
def test_json_is_too_deep_above_the_limit_only(n_levels: int) -> None:
    assert is_too_deep(nested(n_levels)) is (n_levels > MAX_NESTING)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert not is_too_deep(json.dumps({"prompt": [[1, 2]] * 2000}).encode())


def test_brackets_in_strings_do_not_count() -> None:
    assert not is_too_deep(json.dumps({"prompt": '\\"' + '[{"' * 2000, "stop": ["]"]}).encode())
