"""What the page at `/pool` is told of the past: events in order, gaps by the second, and at what price."""

from __future__ import annotations

from pyggml_server.engine.reporting.recorder import N_EVENTS_KEPT, N_SECONDS_KEPT, Recorder
from pyggml_server.history import EventKind, GapSecond

from tests.instructions import n_instructions


def test_an_event_tells_what_happened_to_whom_when_and_why() -> None:
    recorder = Recorder()
    recorder.note(EventKind.PARK, 2, 7, 5.0, "no room", n_cells=3, n_bytes=100, took_s=0.5)
    (event,) = recorder.history.events
    assert (event.number, event.at_s, event.kind, event.slot_id, event.task_id) == (1, 5.0, EventKind.PARK, 2, 7)
    assert (event.n_cells, event.n_bytes, event.took_s, event.reason) == (3, 100, 0.5, "no room")


def test_only_the_latest_events_are_kept_and_their_numbers_go_on() -> None:
    recorder = Recorder()
    for i in range(N_EVENTS_KEPT + 5):
        recorder.note(EventKind.RESTORE, 2, 7, float(i), "", n_cells=3)
    numbers = [event.number for event in recorder.history.events]
    assert numbers == list(range(6, N_EVENTS_KEPT + 6))


def test_the_gaps_of_a_second_are_told_once_it_is_over() -> None:
    recorder = Recorder()
    for now_s, gap_s in ((10.1, 0.25), (10.5, 0.5), (10.9, 0.125)):
        recorder.count_gap(now_s, gap_s)
    assert not recorder.history.gap_seconds
    recorder.count_gap(12.0, 4.0)
    assert recorder.history.gap_seconds == (GapSecond(10, 3, 0.5, 0.875),)


def test_a_second_starts_with_nothing_of_the_one_before_it() -> None:
    recorder = Recorder()
    for now_s in (1.0, 2.0, 3.0):
        recorder.count_gap(now_s, 0.5 / now_s)
    assert recorder.history.gap_seconds == (GapSecond(1, 1, 0.5, 0.5), GapSecond(2, 1, 0.25, 0.25))


def test_only_the_latest_seconds_are_kept() -> None:
    recorder = Recorder()
    for second in range(N_SECONDS_KEPT + 10):
        recorder.count_gap(float(second), 0.1)
    seconds = [gap.second for gap in recorder.history.gap_seconds]
    assert seconds == list(range(9, N_SECONDS_KEPT + 9))


def test_the_last_second_is_told_once_nobody_runs_and_goes_on_if_somebody_does() -> None:
    recorder = Recorder()
    recorder.rest()
    assert not recorder.history.gap_seconds
    recorder.count_gap(1.5, 0.5)
    recorder.rest()
    assert recorder.history.gap_seconds == (GapSecond(1, 1, 0.5, 0.5),)
    recorder.count_gap(1.75, 0.25)
    recorder.count_gap(2.0, 0.25)
    assert recorder.history.gap_seconds == (GapSecond(1, 2, 0.5, 0.75),)


def test_what_is_recorded_costs_the_engine_next_to_nothing() -> None:
    # a gap that begins a second, one that does not, a park
    recorder = Recorder()
    for i in range(max(N_EVENTS_KEPT, N_SECONDS_KEPT)):
        recorder.note(EventKind.PARK, 2, 7, 0.0, "", n_cells=3)
        recorder.count_gap(float(i), 0.1)
    assert n_instructions(lambda: recorder.count_gap(1e6, 0.1)) < 250
    assert n_instructions(lambda: recorder.count_gap(1e6, 0.1)) < 60
    assert n_instructions(lambda: recorder.note(EventKind.PARK, 2, 7, 0.0, "", n_cells=3)) < 250


def test_tokens_within_a_second_publish_nothing_new() -> None:
    recorder = Recorder()
    recorder.note(EventKind.PARK, 2, 7, 0.0, "", n_cells=3)
    published = recorder.history
    for i in range(1000):
        recorder.count_gap(0.5, 0.001 * i)
    assert recorder.history is published
