"""Short bodies that would take all of the time or memory: refused, and everybody else is served on."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S, ServerProcess
from tests.hungry_template import DEEDS, TEMPLATE, endless_chat, hungry_chat

MESSAGES = [{"role": "user", "content": "Hi"}]
MANY = [f"p{i}" for i in range(20_000)]
PATTERN = 2  # a trigger that is a regular expression


def with_schema(schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "/completion", {"prompt": "a", "n_predict": 1, "json_schema": schema}


def with_grammar(grammar: str) -> tuple[str, dict[str, Any]]:
    return "/completion", {"prompt": "a", "n_predict": 1, "grammar": grammar}


def with_trigger(pattern: str, **more: Any) -> tuple[str, dict[str, Any]]:
    lazy = {"grammar_lazy": True, "grammar_triggers": [{"type": PATTERN, "value": pattern}]}
    return "/completion", {"prompt": "a", "n_predict": 1, "grammar": 'root ::= "x"', **lazy, **more}


def named_twice(n_rules: int) -> str:
    rules = [f'r{i} ::= r{i + 1} "a" | r{i + 1} "b"' for i in range(n_rules)]
    return "\n".join(["root ::= r0", *rules, f'r{n_rules} ::= "c"'])


def repeated_repetitions(n_rules: int) -> str:
    rules = [f"r{i} ::= r{i + 1}{{0,2000}}" for i in range(n_rules)]
    return "\n".join(["root ::= r0", *rules, f'r{n_rules} ::= "a"?'])


REFUSED = {
    "a grammar's maximum below its minimum": with_grammar('root ::= "a"{2,1}'),
    "a long literal, often": with_grammar('root ::= "' + "a" * 500_000 + '"{2000}'),
    "many repetitions side by side": with_grammar("root ::= " + "[a-z]{2000} " * 20_000),
    "repetitions of repetitions": with_grammar(repeated_repetitions(1000)),
    "deep parentheses": with_grammar("root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000),
    "rules in a long chain": with_grammar(
        "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1}" for i in range(20_000)), 'r20000 ::= "a"'])
    ),
    "many ways to go on": with_grammar("root ::= " + '"a"? ' * 30_000),
    "a length's maximum below its minimum": with_schema({"type": "string", "minLength": 5, "maxLength": 2}),
    "an array's maximum below its minimum": with_schema({"type": "array", "items": {}, "minItems": 4, "maxItems": 2}),
    "a pattern's maximum below its minimum": with_schema({"type": "string", "pattern": "^a{2,1}$"}),
    "a number of ways that doubles with each rule": with_grammar(named_twice(60)),
    "very many optional properties": with_schema({"type": "object", "properties": {name: {} for name in MANY}}),
    "a trigger with many parentheses": with_trigger("(" * 100_000 + "a" + ")" * 100_000),
    "a long trigger": with_trigger("a" * 90_000),
    "a trigger with very many states": with_trigger("((a{300}){300}){300}"),
    "a trigger that backtracks without end": with_trigger(r"(([\s\S]+)+)+<tool>", n_predict=60, ignore_eos=True),
    "as response_format": (
        "/v1/chat/completions",
        {
            "messages": MESSAGES,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"type": "string", "minLength": 5, "maxLength": 2}},
            },
        },
    ),
}


MIB = 1024 * 1024
N_WORKERS = 2
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def templated(start_ours: StartServer) -> Iterator[ServerProcess]:
    """Two threads read bodies there, and the template is hungry."""
    with start_ours("--jinja", "--chat-template", TEMPLATE, "--threads-http", str(N_WORKERS)) as server:
        yield server


def resident_bytes(server: ServerProcess, *, at_most: bool = False) -> int:
    """Of the process now, or the most that it ever had."""
    status = Path(f"/proc/{server.process_id}/status").read_text()
    found = re.search(rf"{'VmHWM' if at_most else 'VmRSS'}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_would_take_the_machine_is_refused_and_its_memory_comes_back(
    ours: ServerProcess, name: str
) -> None:
    assert_refused(ours, *REFUSED[name])


def assert_refused(server: ServerProcess, path: str, body: dict[str, Any]) -> None:
    """With 400; its memory comes back, and others are served."""
    server.post("/tokenize", {"content": "a"})
    before = resident_bytes(server)
    response = server.post(path, body)
    assert response.status_code == 400, response.text[:300]
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert resident_bytes(server) - before < 300 * MIB
    assert resident_bytes(server, at_most=True) - before < 1000 * MIB
    assert server.post("/completion", {"prompt": "a", "n_predict": 1}).status_code == 200


@pytest.mark.parametrize("deed", DEEDS)
def test_a_body_that_makes_the_template_take_the_machine_is_refused(templated: ServerProcess, deed: str) -> None:
    path = "/apply-template" if deed == "a repeated string" else "/v1/chat/completions"
    assert_refused(templated, path, hungry_chat(deed))


def cpu_s(server: ServerProcess) -> float:
    fields = Path(f"/proc/{server.process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def test_others_are_served_once_the_clients_of_endless_bodies_have_left(templated: ServerProcess) -> None:
    """Each may take more CPU time than this test waits, and together they hold every thread that reads bodies."""
    address = urlsplit(templated.url)
    body = json.dumps(endless_chat(2 * PATIENCE_S)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    before = cpu_s(templated)
    clients = [socket.create_connection((address.hostname, address.port)) for _ in range(N_WORKERS)]
    for client in clients:
        client.sendall(head + body)
    while cpu_s(templated) - before < 2.0:
        assert templated.get("/health").status_code == 200
    for client in clients:
        client.close()
    assert templated.post("/tokenize", {"content": "a"}).status_code == 200


def test_a_grammar_whose_rules_name_the_next_one_twice_is_read_at_once(ours: ServerProcess) -> None:
    rules = [f"r{i} ::= r{i + 1} | r{i + 1}" for i in range(60)]
    path, body = with_grammar("\n".join(["root ::= r0", *rules, 'r60 ::= "c"']))
    assert ours.post(path, body).json()["content"] == "c"


def test_a_grammar_that_grows_while_it_is_followed_ends_its_own_request_only(ours: ServerProcess) -> None:
    path, body = with_grammar('root ::= "a" (' + '"b"? ' * 4000 + ")")
    response = ours.post(path, body)
    assert response.status_code == 400
    assert ours.post("/completion", {"prompt": "a", "n_predict": 1}).status_code == 200


@pytest.mark.parametrize("where", ["properties", "$ref"])
def test_long_names_in_a_schema_are_read(ours: ServerProcess, where: str) -> None:
    """Not refused, and not a regular expression that recurses for each character."""
    name = "!" * 200_000
    long = {"type": "object", "properties": {name: {"type": "string"}}}
    referring = {"$ref": f"#/definitions/{name}", "definitions": {name: {"type": "string"}}}
    assert ours.post(*with_schema(long if where == "properties" else referring)).status_code == 200


def test_a_trigger_that_is_linear_is_searched_in_all_of_a_text(ours: ServerProcess) -> None:
    path, body = with_trigger(r"^[\s\S]*?(<tool>)[\s\S]*$", n_predict=100, ignore_eos=True)
    assert ours.post(path, body).json()["tokens_predicted"] == 100


def test_an_honest_large_body_is_read(ours: ServerProcess) -> None:
    text = "A long text about nothing much. " * 30_000
    tokens = ours.post("/tokenize", {"content": text}).json()["tokens"]
    assert ours.post("/detokenize", {"tokens": tokens}).json() == {"content": text}
    properties = {name: {"type": "string", "maxLength": 200, "pattern": "^[a-z]{1,20}$"} for name in MANY[:100]}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    assert len(json.dumps(schema)) > 5000
    assert ours.post(*with_schema(schema)).status_code == 200
