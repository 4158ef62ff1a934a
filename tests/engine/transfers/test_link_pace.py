"""How much is sent behind each batch: more while it completes before the next one, less where it did not."""

from __future__ import annotations

from pyggml_server.engine.transfers.link_pace import FIRST_PART_BYTES, GROWTH, LEAST_PART_BYTES, LinkPace


def sent_behind_a_batch(pace: LinkPace, has_completed: bool) -> int:
    """All that may be sent behind this batch, and whether it is there when the next one begins."""
    n_bytes = pace.room_bytes
    pace.note_sent(n_bytes)
    pace.begin_pass(has_completed)
    return n_bytes


def test_a_part_that_completes_before_the_next_batch_makes_the_next_part_larger() -> None:
    pace = LinkPace()
    assert sent_behind_a_batch(pace, has_completed=True) == FIRST_PART_BYTES
    assert pace.room_bytes == int(GROWTH * FIRST_PART_BYTES)


def test_a_part_that_does_not_is_halved_and_nothing_is_sent_until_it_has_completed() -> None:
    pace = LinkPace()
    sent_behind_a_batch(pace, has_completed=False)
    assert sent_behind_a_batch(pace, has_completed=False) == 0
    assert sent_behind_a_batch(pace, has_completed=True) == 0
    assert pace.room_bytes == FIRST_PART_BYTES // 2


def test_a_part_that_was_not_used_up_teaches_nothing() -> None:
    pace = LinkPace()
    pace.note_sent(1000)
    assert pace.room_bytes == FIRST_PART_BYTES - 1000
    pace.begin_pass(has_completed=True)
    assert pace.room_bytes == FIRST_PART_BYTES


def test_parts_do_not_become_so_small_that_a_state_never_comes() -> None:
    pace = LinkPace()
    for _ in range(40):
        sent_behind_a_batch(pace, has_completed=False)
        sent_behind_a_batch(pace, has_completed=True)
    assert pace.room_bytes == LEAST_PART_BYTES
