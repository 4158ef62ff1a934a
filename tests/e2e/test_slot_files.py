"""POST /slots/{id_slot}: files go both ways between the two servers, and mistakes get stock's answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

PROMPT = "Once upon a time there was a small robot who wanted to learn how to paint the sea."
ALONE = {"temperature": 0, "seed": 1, "n_predict": 6, "ignore_eos": True, "return_tokens": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def our_keeper(start_ours: StartServer, folder: Path) -> Iterator[ServerProcess]:
    with start_ours("--slot-save-path", str(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def stock_keeper(start_stock: StartServer, folder: Path) -> Iterator[ServerProcess]:
    with start_stock("--slot-save-path", str(folder)) as server:
        yield server


def complete(server: ServerProcess, slot_id: int, prompt: str = PROMPT) -> dict[str, Any]:
    answer: dict[str, Any] = server.post("/completion", {**ALONE, "prompt": prompt, "id_slot": slot_id}).json()
    return answer


def act(server: ServerProcess, slot_id: int, action: str, filename: str = "") -> dict[str, Any]:
    response = server.post(f"/slots/{slot_id}?action={action}", {"filename": filename})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("is_ours_first", [True, False])
def test_a_slot_goes_from_one_server_to_the_other(
    our_keeper: ServerProcess, stock_keeper: ServerProcess, is_ours_first: bool
) -> None:
    first, second = (our_keeper, stock_keeper) if is_ours_first else (stock_keeper, our_keeper)
    act(first, 1, "erase")
    expected = complete(first, 1)
    name = f"from {'ours' if is_ours_first else 'stock'}.bin"
    saved = act(first, 1, "save", name)
    restored = act(second, 2, "restore", name)
    assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])
    answer = complete(second, 2)
    assert answer["timings"]["prompt_n"] == 1  # the rest came out of the file
    assert answer["tokens"] == expected["tokens"]


def test_both_servers_write_the_same_file(our_keeper: ServerProcess, stock_keeper: ServerProcess, folder: Path) -> None:
    for server, name in ((our_keeper, "a.bin"), (stock_keeper, "b.bin")):
        for i in range(4):
            act(server, i, "erase")
        complete(server, 0)
        act(server, 0, "save", name)
    ours, stock = ((folder / name).read_bytes() for name in ("a.bin", "b.bin"))
    n_words = 3 + int.from_bytes(stock[8:12], "little")  # magic, version, count, and the tokens in their wrapping
    assert ours[: 4 * n_words] == stock[: 4 * n_words]
    assert len(ours) == len(stock)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/slots/0?action=save", {"filename": "same.bin"}),
        ("/slots/0?action=restore", {"filename": "same.bin"}),
        ("/slots/0?action=erase", {}),
        ("/slots/0?action=erase", None),
        ("/slots/3?action=save", {"filename": "empty.bin"}),
        ("/slots/3?action=restore", {"filename": "empty.bin"}),
        ("/slots/0?action=save", {"filename": "../x"}),
        ("/slots/0?action=save", {"filename": "a/b"}),
        ("/slots/0?action=save", {"filename": ""}),
        ("/slots/0?action=save", {"filename": 5}),
        ("/slots/0?action=save", {}),
        ("/slots/0?action=restore", {"filename": "no such file"}),
        ("/slots/4?action=restore", {"filename": "same.bin"}),
        ("/slots/4?action=save", {"filename": "same.bin"}),
        ("/slots/-1?action=erase", {}),
        ("/slots/0?action=burn", {}),
        ("/slots/0", {}),
        ("/slots/99?action=save", {"filename": "../x"}),
        ("/slots/-1?action=save", {"filename": "same.bin"}),
        ("/slots/?action=erase", {}),
        ("/slots/0/?action=erase", {}),
        ("/slots/%30?action=erase", {}),
        ("/slots/+0?action=erase", {}),
        ("/slots/1.5?action=erase", {}),
        ("/slots/0?action=ERASE", {}),
        ("/slots/0?action=erase&action=burn", {}),
        ("/slots/x?action=erase", {}),
        ("/slots/0x?action=erase", {}),
        ("/slots/99999999999?action=erase", {}),
    ],
    ids=str,
)
def test_an_action_gets_the_answer_of_stock(
    our_keeper: ServerProcess, stock_keeper: ServerProcess, path: str, body: dict[str, Any] | None
) -> None:
    for server in (our_keeper, stock_keeper):
        act(server, 3, "erase")
        act(server, 0, "erase")
        complete(server, 0)
        act(server, 0, "save", "same.bin")
        act(server, 3, "save", "empty.bin")
    assert_same_answer(our_keeper, stock_keeper, "POST", path, body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null"], ids=repr)
@pytest.mark.parametrize("path", ["/slots/0?action=save", "/slots/0?action=restore", "/v1/chat/completions/control"])
def test_a_body_that_is_no_call(our_keeper: ServerProcess, stock_keeper: ServerProcess, path: str, body: bytes) -> None:
    assert_same_answer(our_keeper, stock_keeper, "POST", path, body)


def test_without_the_flag_there_are_no_slot_actions(ours: ServerProcess, stock: ServerProcess) -> None:
    assert assert_same_answer(ours, stock, "POST", "/slots/0?action=erase")[0] == 501


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "x"},
        {"id": 5, "action": "reasoning_end"},
        {"id": "x", "action": "nope"},
        {"id": "chatcmpl-x", "action": "reasoning_end"},
    ],
    ids=str,
)
def test_control_gets_the_answer_of_stock(ours: ServerProcess, stock: ServerProcess, body: dict[str, Any]) -> None:
    assert_same_answer(ours, stock, "POST", "/v1/chat/completions/control", body)
