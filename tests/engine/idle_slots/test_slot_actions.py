"""Slots saved to files, restored and erased: the tokens that come back, who waits, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.messages import Call, Cancel, Cancelled, EndReasoning, SlotAction, SlotVerb

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

PROMPT = list(range(100, 140))


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[EngineHarness]:
    argv = ["-m", str(smollm2_path), "-c", "256", "-np", "2", "--kv-unified", "-t", "1"]
    with EngineHarness(argv) as harness:
        yield harness


@pytest.fixture(autouse=True)
def invariants(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


def act(engine: EngineHarness, verb: SlotVerb, slot_id: int, path: Path | None = None) -> dict[str, object]:
    def make(task_id: int) -> Call:
        return SlotAction(task_id, verb, slot_id, path.name if path else "", str(path or ""))

    return engine.call(make)


def complete(engine: EngineHarness, slot_id: int, prompt: list[int], n_predict: int = 4) -> dict[str, object]:
    body = {"prompt": prompt, "n_predict": n_predict, "id_slot": slot_id, "temperature": 0, "ignore_eos": True}
    return engine.run(**body).result()


def n_cached(result: dict[str, object]) -> object:
    timings = result["timings"]
    assert isinstance(timings, dict)
    return timings["cache_n"]


def test_a_saved_slot_goes_on_in_another_slot(engine: EngineHarness, tmp_path: Path) -> None:
    file = tmp_path / "slot.bin"
    expected = complete(engine, 0, PROMPT)
    saved = act(engine, SlotVerb.SAVE, 0, file)
    n_tokens = len(PROMPT) + 3  # the last token that was sampled is not decoded
    assert saved["n_saved"] == n_tokens
    assert saved["n_written"] == file.stat().st_size
    restored = act(engine, SlotVerb.RESTORE, 1, file)
    assert (restored["id_slot"], restored["filename"], restored["n_restored"]) == (1, "slot.bin", n_tokens)
    assert restored["n_read"] == saved["n_written"]
    again = complete(engine, 1, PROMPT)
    assert (again["content"], n_cached(again)) == (expected["content"], len(PROMPT) - 1)


def test_an_erased_slot_starts_from_nothing(engine: EngineHarness) -> None:
    complete(engine, 0, PROMPT)
    erased = act(engine, SlotVerb.ERASE, 0)
    assert erased == {"id_slot": 0, "n_erased": len(PROMPT) + 3}
    assert n_cached(complete(engine, 0, PROMPT)) == 0


def test_an_action_waits_for_the_completion_that_has_the_slot(engine: EngineHarness, tmp_path: Path) -> None:
    running = engine.start(prompt=PROMPT, n_predict=60, id_slot=0, ignore_eos=True, stream=True)
    engine.wait_for_tokens(running, 1)
    saved = act(engine, SlotVerb.SAVE, 0, tmp_path / "late.bin")
    engine.wait(running)
    assert saved["n_saved"] == len(PROMPT) + 59


def test_an_action_that_waits_can_be_cancelled(engine: EngineHarness, tmp_path: Path) -> None:
    file = tmp_path / "never.bin"
    running = engine.start(prompt=PROMPT, n_predict=60, id_slot=0, ignore_eos=True, stream=True)
    engine.wait_for_tokens(running, 1)
    task_id = engine.start_call(lambda task_id: SlotAction(task_id, SlotVerb.SAVE, 0, file.name, str(file)))
    engine.engine.submit(Cancel(task_id))
    engine.wait(running)
    assert engine.last_of_call(task_id) == Cancelled(task_id)
    assert not file.exists()


@pytest.mark.parametrize("slot_id", [-1, 3])
def test_ids_beyond_the_last_slot_begin_again_at_the_first(engine: EngineHarness, slot_id: int) -> None:
    act(engine, SlotVerb.ERASE, 0)
    complete(engine, 1, PROMPT, n_predict=1)
    assert act(engine, SlotVerb.ERASE, slot_id) == {"id_slot": slot_id, "n_erased": len(PROMPT)}


@pytest.mark.parametrize("content", [None, b"", b"no sequence file at all"], ids=["missing", "empty", "other"])
def test_what_is_no_slot_file_is_refused_and_leaves_the_slot_its_prompt(
    engine: EngineHarness, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "bad.bin"
    if content is not None:
        file.write_bytes(content)
    complete(engine, 0, PROMPT)
    error = act(engine, SlotVerb.RESTORE, 0, file)
    assert error["code"] == 400
    assert str(error["message"]).startswith("Unable to restore slot: ")
    assert n_cached(complete(engine, 0, PROMPT)) == len(PROMPT) - 1


@pytest.mark.parametrize("keep", [13, 40, 2000])
def test_a_file_that_was_cut_off_is_refused(engine: EngineHarness, tmp_path: Path, keep: int) -> None:
    file = tmp_path / "cut.bin"
    complete(engine, 0, PROMPT)
    act(engine, SlotVerb.SAVE, 0, file)
    file.write_bytes(file.read_bytes()[:keep])
    assert act(engine, SlotVerb.RESTORE, 1, file)["code"] == 400
    assert n_cached(complete(engine, 1, PROMPT)) == 0


def test_tokens_that_do_not_belong_to_the_cells_are_refused(engine: EngineHarness, tmp_path: Path) -> None:
    short, long = tmp_path / "short.bin", tmp_path / "long.bin"
    complete(engine, 0, PROMPT[:10], n_predict=1)
    act(engine, SlotVerb.SAVE, 0, short)
    complete(engine, 0, PROMPT, n_predict=1)
    act(engine, SlotVerb.SAVE, 0, long)
    n_head, n_short, n_long = 12, 4 * (10 + 4), 4 * (len(PROMPT) + 4)
    lies = tmp_path / "lies.bin"
    lies.write_bytes(short.read_bytes()[: n_head + n_short] + long.read_bytes()[n_head + n_long :])
    error = act(engine, SlotVerb.RESTORE, 1, lies)
    assert "10 tokens for 40 positions" in str(error["message"])


def test_a_slot_that_cannot_be_written_is_the_servers_fault(engine: EngineHarness, tmp_path: Path) -> None:
    complete(engine, 0, PROMPT)
    error = act(engine, SlotVerb.SAVE, 0, tmp_path / "no such folder" / "x.bin")
    assert error == {"code": 500, "message": "Unable to save slot", "type": "server_error"}


@pytest.mark.parametrize("ram_mib", [0, None])
def test_an_idle_slot_gives_its_prompt_up_for_a_file_unless_preemption_is_off(
    ram_mib: int | None, smollm2_path: Path, tmp_path: Path
) -> None:
    argv = ["-m", str(smollm2_path), "-c", "256", "-np", "2", "--kv-unified", "-t", "1", "--no-cache-idle-slots"]
    file = tmp_path / "large.bin"
    with EngineHarness(argv, PreemptOptions(ram_mib=ram_mib)) as engine:
        complete(engine, 0, list(range(100, 250)))
        act(engine, SlotVerb.SAVE, 0, file)
        answer = act(engine, SlotVerb.RESTORE, 1, file)
        n_cells = [slot.n_cells for slot in engine.engine.snapshot().slots]
    if ram_mib == 0:
        assert "No available space in KV cache or invalid slot save file" in str(answer["message"])
        assert n_cells == [153, 0]
    else:
        assert (answer["n_restored"], n_cells) == (153, [0, 153])


def test_reasoning_of_a_completion_that_does_not_run_cannot_be_ended(engine: EngineHarness) -> None:
    answer = engine.call(lambda task_id: EndReasoning(task_id, "chatcmpl-nobody"))
    assert answer == {"success": False, "message": "no active completion for this id"}
