"""Parks and restores through staging memory: the cells are free when a park has been issued, and come back the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight
from pyggml_server.engine.transfers import link_pace
from pyggml_server.engine.transfers.link_pace import LinkPace

from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import RowWatch


class ParkWatch:
    """Of each park, in their order: its cells, and whether it needed them until it completed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parks: list[tuple[int, bool]] = []
        issued = copies._issued

        def watched(*arguments: object) -> CopyInFlight:
            copy = issued(*arguments)  # type: ignore[arg-type]
            self.parks.append((copy.n_cells, copy.frees_on_completion))
            return copy

        monkeypatch.setattr(copies, "_issued", watched)


@pytest.fixture
def parks(monkeypatch: pytest.MonkeyPatch) -> ParkWatch:
    return ParkWatch(monkeypatch)


@pytest.mark.parametrize("part_bytes", [link_pace.FIRST_PART_BYTES, 5_000])  # in one part, and in several
def test_forced_staged_parks_free_their_cells_at_once_and_bring_back_the_same_rows(
    model: Path, rows: RowWatch, parks: ParkWatch, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    note_sent = LinkPace.note_sent

    def noted(pace: LinkPace, n_bytes: int) -> None:
        sent.append(n_bytes)
        note_sent(pace, n_bytes)

    monkeypatch.setattr(link_pace, "FIRST_PART_BYTES", part_bytes)
    monkeypatch.setattr(link_pace, "LEAST_PART_BYTES", part_bytes)
    monkeypatch.setattr(link_pace, "GROWTH", 1)
    monkeypatch.setattr(LinkPace, "note_sent", noted)
    with engine(model, every_n_tokens=7, staging_mib=16) as harness:
        chats = [harness.start(**chat(i, 60)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
        assert is_at_rest(harness)
    assert not any(frees_on_completion for _, frees_on_completion in parks.parks)
    assert rows.n_compared >= 4 * (60 // 7 - 1)
    # How many parts are sent ahead of their batch depends on the machine: none, if no other chat computes meanwhile.
    assert max(sent, default=0) < 2 * part_bytes  # rows go whole
    assert rows.differing == []


def test_a_chat_that_is_parked_through_staging_has_the_text_of_one_that_is_not(model: Path) -> None:
    texts = []
    for every_n_tokens in (0, 5):
        with engine(model, every_n_tokens=every_n_tokens, staging_mib=16) as harness:
            texts.append(harness.run(**chat(0, 50)).text())
            assert (harness.engine.snapshot().counters.restores_total > 0) == (every_n_tokens > 0)
    assert texts[0] == texts[1]


def test_a_state_that_staging_cannot_hold_keeps_its_cells_until_it_has_left_in_chunks(
    model: Path, rows: RowWatch, parks: ParkWatch
) -> None:
    with engine(model, n_ctx=1024, every_n_tokens=10, staging_mib=1) as harness:
        small, large = harness.start(**chat(0, 40)), harness.start(**chat(1, 40, n_prompt=400))
        harness.wait(small, large)
        assert n_finished([small, large]) == 2
        assert is_at_rest(harness)
    assert {n_cells > 300: frees_on_completion for n_cells, frees_on_completion in parks.parks} == {
        True: True,
        False: False,
    }
    assert rows.differing == []


def test_chats_that_overflow_the_pool_all_finish_through_staging(model: Path, rows: RowWatch) -> None:
    with engine(model, staging_mib=16, rotate_s=0) as harness:
        chats = [harness.start(**chat(i, 200, n_prompt=60)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
        assert harness.engine.snapshot().counters.restores_total >= 1
        assert is_at_rest(harness)
    assert rows.differing == []


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_answers_that_share_a_prompt_come_back_together(model: Path, staging_mib: int) -> None:
    with engine(model, every_n_tokens=7, staging_mib=staging_mib) as harness:
        family = harness.start(**chat(0, 30, n_prompt=60, n=3))
        harness.wait(family)
        assert [family.result(i)["tokens_predicted"] for i in range(3)] == [30, 30, 30]
        assert harness.engine.snapshot().counters.restores_total >= 3
        assert is_at_rest(harness)
