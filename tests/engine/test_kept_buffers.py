"""Buffers that nobody holds stay page-locked, never beyond the budget, never in the way of one that is needed."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml_server.engine.kept_buffers import KeptBuffers


@dataclass(eq=False)
class Buffer:
    size_bytes: int
    is_held: bool
    n_frees: int = 0

    def free(self) -> None:
        assert not self.is_held
        self.size_bytes = 0
        self.n_frees += 1


def buffers(limit_bytes: int, *sizes: tuple[int, bool]) -> tuple[KeptBuffers, list[Buffer]]:
    kept = KeptBuffers(limit_bytes)
    made = [Buffer(size_bytes, is_held) for size_bytes, is_held in sizes]
    for buffer in made:
        kept.add(buffer)
    return kept, made


def test_a_kept_buffer_of_a_fitting_size_is_used_again() -> None:
    kept, (own, other) = buffers(1000, (300, False), (400, False))
    kept.make_room(own, 200)
    assert (own.size_bytes, other.size_bytes) == (300, 400)


def test_a_kept_buffer_that_is_too_small_or_far_too_large_is_freed_first() -> None:
    for n_bytes in (301, 149):
        kept, (own,) = buffers(1000, (300, False))
        kept.make_room(own, n_bytes)
        assert own.size_bytes == 0


def test_a_kept_buffer_that_is_small_beside_the_limit_is_used_again_for_any_state() -> None:
    kept, (own,) = buffers(2400, (300, False))
    kept.make_room(own, 1)
    assert own.size_bytes == 300


def test_the_largest_kept_buffers_of_others_go_until_the_new_one_fits_the_limit() -> None:
    kept, (own, small, large, held) = buffers(1000, (0, False), (200, False), (300, False), (400, True))
    kept.make_room(own, 350)
    assert (small.size_bytes, large.size_bytes, held.size_bytes) == (200, 0, 400)


def test_nothing_is_freed_while_everything_fits() -> None:
    kept, (own, other, held) = buffers(1000, (0, False), (300, False), (400, True))
    kept.make_room(own, 300)
    assert (other.n_frees, held.size_bytes) == (0, 400)


def test_a_kept_buffer_is_not_used_whole_where_that_would_pass_the_limit() -> None:
    kept, (own, held) = buffers(1000, (500, False), (600, True))
    kept.make_room(own, 400)
    assert (own.size_bytes, held.size_bytes) == (0, 600)


def test_a_buffer_that_grows_gets_half_as_much_again_as_far_as_the_limit_goes() -> None:
    kept, (own, _) = buffers(1000, (100, True), (400, True))
    assert [kept.make_room(own, n_bytes) for n_bytes in (200, 500, 600)] == [300, 600, 600]


def test_a_buffer_that_is_large_enough_does_not_grow() -> None:
    kept, (own,) = buffers(1000, (300, True))
    assert kept.make_room(own, 200) == 300


def test_a_buffer_that_its_own_task_holds_is_left_alone() -> None:
    kept, (own,) = buffers(1000, (500, True))
    kept.make_room(own, 600)
    assert own.n_frees == 0
