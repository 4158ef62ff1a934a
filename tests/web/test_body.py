"""The limit on nesting: deep JSON and deep grammars are refused before llama.cpp walks them by recursion."""

from __future__ import annotations

import json

import pytest
from pyggml_server.errors import RequestRefusedError
from pyggml_server.web.body import MAX_GRAMMAR_RULES, MAX_NESTING, check_recursion, is_too_deep


def nested(n_levels: int) -> bytes:
    return b'{"items":' * n_levels + b"1" + b"}" * n_levels


@pytest.mark.parametrize("n_levels", [1, MAX_NESTING, MAX_NESTING + 1, 100_000])
def test_json_is_too_deep_above_the_limit_only(n_levels: int) -> None:
    assert is_too_deep(nested(n_levels)) is (n_levels > MAX_NESTING)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert not is_too_deep(json.dumps({"prompt": [[1, 2]] * 2000}).encode())


def test_brackets_in_strings_do_not_count() -> None:
    assert not is_too_deep(json.dumps({"prompt": '\\"' + '[{"' * 2000, "stop": ["]"]}).encode())


def with_grammar(grammar: str) -> bytes:
    return json.dumps({"prompt": "a", "grammar": grammar}).encode()


def grammar_of(n_levels: int) -> str:
    return "root ::= " + "(" * n_levels + '"a"' + ")" * n_levels


def rules(n_rules: int) -> str:
    return "\n".join(f"r{i} ::= r{i + 1}" for i in range(n_rules))


@pytest.mark.parametrize("grammar", [grammar_of(MAX_NESTING), rules(MAX_GRAMMAR_RULES), '"(" ")" ' * 1000])
def test_a_grammar_within_the_limits_passes(grammar: str) -> None:
    check_recursion(with_grammar(grammar))


@pytest.mark.parametrize(
    "body",
    [
        with_grammar(grammar_of(MAX_NESTING + 1)),
        with_grammar(rules(MAX_GRAMMAR_RULES + 1)),
        with_grammar(grammar_of(50_000)).replace(b"grammar", b"gr\\u0061mmar"),
        b'{"grammar":' + json.dumps(grammar_of(50_000)).encode() + b',"grammar":"","n":' + b"9" * 5000 + b"}",
    ],
    ids=["parentheses", "rules", "escaped key", "key given twice beside a long number"],
)
def test_a_grammar_beyond_the_limits_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefusedError, match="the grammar"):
        check_recursion(body)


def test_a_body_that_is_no_json_is_left_to_llama_cpp() -> None:
    check_recursion(b'{"grammar": ' + b"x" * 1000)
