"""Requests made from the parameters in the README of llama-server of the pinned tree, always the same ones.

`VALUES` has what each parameter is tried with: what is usual, what is at an edge, what is of the wrong type. A test
compares its names with that README, so that a parameter that a new version brings must be given values here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.comparing import CLEAR_QUESTION

README = Path(__file__).parents[2] / "vendor/ggml/llama.cpp/tools/server/README.md"
SEED = 20261130
PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9,"
HI = [{"role": "user", "content": CLEAR_QUESTION}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

# One slot and no reuse: what a server has in its cache when a request comes is the same in both.
GREEDY = {"temperature": 0, "seed": 1, "n_predict": 4, "cache_prompt": False, "id_slot": 0}

VALUES: dict[str, list[Any]] = {
    "prompt": [PROMPT, [33, 28, 216], [33, "a", 216], [PROMPT, "a, b, c,"], "", 5, None, [], [999999], {}],
    "temperature": [0, 0.5, -1, "hot", None],
    "dynatemp_range": [0, 0.5, "x"],
    "dynatemp_exponent": [1, 0.5, []],
    "top_k": [1, 40, 0, -1, 1.5, "x"],
    "top_p": [0.5, 1, 0, 2, "x"],
    "min_p": [0.1, 0, 1, "x"],
    "n_predict": [1, 7],  # what is wrong here means no limit, and takes long; 0 gives one token there, none here
    "n_indent": [0, 2, -1, "x"],
    "n_keep": [0, 5, -1, "x"],
    "n_cmpl": [1, 0, "x"],
    "n_cache_reuse": [0, 8, -1, "x"],
    "stream": [True, False, "yes", 1, None],
    "stop": [[" 11"], ["no such text"], [], "10", 5, [5]],  # an empty one ends the answer there
    "typical_p": [0.5, 1, "x"],
    "repeat_penalty": [1.1, 1, 0, "x"],
    "repeat_last_n": [0, 64, -1, -2, "x"],
    "presence_penalty": [0.5, -0.5, "x"],
    "frequency_penalty": [0.5, -0.5, "x"],
    "dry_multiplier": [0.8, 0, "x"],
    "dry_base": [1.75, 0.5, "x"],
    "dry_allowed_length": [2, 0, "x"],
    "dry_penalty_last_n": [-1, 0, 64, -2],
    "dry_sequence_breakers": [["\n"], [], "x", [5]],
    "xtc_probability": [0.5, 0, 2, "x"],
    "xtc_threshold": [0.1, 0.6, "x"],
    "mirostat": [0, 1, 2, 3, "x"],
    "mirostat_tau": [5, 0, "x"],
    "mirostat_eta": [0.1, 0, "x"],
    "grammar": ["root ::= [a-z]+", "", "root ::=", 5],
    "json_schema": [SCHEMA, {"type": "nope"}, {}, 5, "x"],
    "seed": [1, -1, 4294967295, "x", None],
    "ignore_eos": [True, False, "x"],
    "logit_bias": [[[216, -100.0]], [[216, False]], [["9", 1.5]], {"216": -5}, [], 5, [[-1, 1]], [[999999, 1]]],
    "n_probs": [0, 3, -1, "x"],
    "min_keep": [0, 3, "x"],
    "t_max_predict_ms": [600000, -1, "x"],
    "id_slot": [0, -1, "x", None],
    "cache_prompt": [False, "x"],
    "return_tokens": [True, False, "x"],
    "samplers": [["top_k"], ["top_p", "temperature"], [], "kt", 5, ["nope"]],
    "timings_per_token": [True, "x"],
    "return_progress": [True, "x"],
    "sse_ping_interval": [30, -1, "x"],
    "post_sampling_probs": [True, False, "x"],
    "response_fields": [["content"], ["timings/predicted_n", "nope"], [], "content", [5]],
    "lora": [[], [{"id": 0, "scale": 0.5}], 5, [{}]],
}
CHAT_VALUES: dict[str, list[Any]] = {
    "chat_template_kwargs": [{"enable_thinking": False}, {}, 5, {"x": None}],
    "reasoning_effort": ["none", "low", 5],
    "reasoning_format": ["none", "auto", "deepseek", "nope", 5],
    "reasoning_control": [True, False, "x"],
    "generation_prompt": ["<|im_start|>assistant\n", "", 5],
    "parse_tool_calls": [True, False, "x"],
    "parallel_tool_calls": [True, False, "x"],
    "response_format": [{"type": "json_object"}, {"type": "json_object", "schema": SCHEMA}, {"type": "nope"}, 5],
    "messages": [HI, [], "x", [{"role": "user"}], [{"role": "system", "content": "Be short."}, *HI]],
    "tools": [[TOOL], [], 5],
    "tool_choice": ["auto", "none", "nope"],
    "max_tokens": [3, 0],
    "logprobs": [True, False, 5],
    "top_logprobs": [2, -1, "x"],
    "stream_options": [{"include_usage": True}, {}, 5],
}
TOKENIZE_VALUES: dict[str, list[Any]] = {
    "content": ["Hello world", ["a", 5, "b"], "\u00e9\U0001f600", "<|im_start|>", 5, None, "", [], {}],
    "add_special": [True, False, "x"],
    "parse_special": [True, False, "x"],
    "with_pieces": [True, False, "x"],
}


@dataclass(frozen=True)
class GeneratedRequest:
    """One POST, and the parameters by which it differs from the plain one of its route."""

    path: str
    body: dict[str, Any]
    changes: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.path} {self.changes}"


@dataclass(frozen=True)
class Family:
    """A route, its plain body, and what is varied in it."""

    path: str
    plain: dict[str, Any]
    values: dict[str, list[Any]]


FAMILIES = (
    Family("/completion", {"prompt": PROMPT, **GREEDY}, VALUES),
    Family("/v1/completions", {"prompt": PROMPT, **GREEDY, "max_tokens": 4}, VALUES),
    Family("/v1/chat/completions", {"messages": HI, **GREEDY, "max_tokens": 4}, {**VALUES, **CHAT_VALUES}),
    Family("/tokenize", {"content": "Hello world"}, TOKENIZE_VALUES),
)


def each_value_alone() -> Iterator[GeneratedRequest]:
    """Every value of every parameter, once, on a route that is drawn for it."""
    draw = random.Random(SEED)
    for values, families in (
        (VALUES, FAMILIES[:3]),
        (CHAT_VALUES, FAMILIES[2:3]),
        (TOKENIZE_VALUES, FAMILIES[3:]),
    ):
        for name, tried in values.items():
            for value in tried:
                family = draw.choice(families)
                yield GeneratedRequest(family.path, {**family.plain, name: value}, {name: value})


def mixed(n_requests: int) -> Iterator[GeneratedRequest]:
    """Several parameters at a time, half of the requests streamed. The first value of each is one that is right."""
    draw = random.Random(SEED + 1)
    for _ in range(n_requests):
        family = draw.choice(FAMILIES[:3])
        names = draw.sample(sorted(family.values), draw.randint(2, 4))
        changes = {name: draw.choice(family.values[name][:2]) for name in names}
        body = {**family.plain, "stream": draw.random() < 0.5, **changes}
        yield GeneratedRequest(family.path, body, {**changes, "stream": body["stream"]})


def parameters_in_readme(heading: str) -> set[str]:
    """The parameters that the section of that heading describes."""
    text = README.read_text(encoding="utf-8")
    section = text.split(f"\n### {heading}", 1)[1].split("\n### ", 1)[0].split("**Response format**", 1)[0]
    return set(re.findall(r"^`([a-z_]+)` ?:", section, re.MULTILINE))
