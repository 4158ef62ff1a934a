"""POST /slots/{id_slot}: files go both ways between the two servers, and mistakes get stock's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess
from tests.engine.window_model import write_window_model

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


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "no slot file": lambda _: b"no slot file, but long enough to have a header",
    "cut in its tokens": lambda whole: whole[:40],
    "cut in its state": lambda whole: whole[: len(whole) // 2],
    "cut at its end": lambda whole: whole[:-1],
    "without cells": lambda whole: whole[:200] + bytes(len(whole) - 200),
}


@pytest.mark.parametrize("damage", ["missing", *DAMAGE])
def test_a_restore_that_fails_leaves_the_slot_its_prompt(our_keeper: ServerProcess, folder: Path, damage: str) -> None:
    complete(our_keeper, 1)
    act(our_keeper, 1, "save", "whole.bin")
    if damage != "missing":
        (folder / f"{damage}.bin").write_bytes(DAMAGE[damage]((folder / "whole.bin").read_bytes()))
    expected = complete(our_keeper, 1)
    response = our_keeper.post("/slots/1?action=restore", {"filename": f"{damage}.bin"})
    assert response.status_code == 400
    answer = complete(our_keeper, 1)
    assert answer["timings"]["prompt_n"] == 1  # all but the last token, which is always decoded, was there
    assert answer["tokens"] == expected["tokens"]


@pytest.fixture(scope="module")
def window_path(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Path:
    return write_window_model(tmp_path_factory.mktemp("window") / "window.gguf", smollm2_path)


def test_a_slot_with_a_window_reuses_after_a_restore_nearly_what_it_reused_before(
    start_ours: StartServer, start_stock: StartServer, window_path: Path, folder: Path
) -> None:
    flags = ("-m", str(window_path), "--slot-save-path", str(folder), "-b", "32", "-ub", "32")
    prompt = PROMPT * 6
    with start_ours(*flags) as server:
        complete(server, 0, prompt)
        act(server, 0, "save", "window.bin")
        expected = complete(server, 0, prompt)
        assert expected["timings"]["cache_n"] > 0
        restored = act(server, 2, "restore", "window.bin")
        answer = complete(server, 2, prompt)
    # a state has no cells out of the window: reuse ends at the last checkpoint, shortly before the prompt's end
    assert expected["timings"]["cache_n"] - 8 <= answer["timings"]["cache_n"] <= expected["timings"]["cache_n"]
    assert answer["tokens"] == expected["tokens"]
    with start_stock(*flags) as stock:
        assert act(stock, 2, "restore", "window.bin")["n_restored"] == restored["n_restored"]


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
