"""Where cells and positions come apart, and what equal numbers in two token lists mean."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import cast

import pytest
from pyggml_server.engine.slots.common_prefix import common_prefix
from pyggml_server.engine.slots.images import (
    ImageName,
    ImageNames,
    ImageRun,
    image_at,
    n_positions,
    n_tokens_up_to,
    n_uncut,
    named,
    next_image,
)
from pyggml_server.native.media import MediaRun
from pyggml_server.native.task import Task

NAME = ImageName(-2, n_tokens=3, n_pos=2)
# five tokens of text, two images of three cells and two positions each, text
IMAGES = (ImageRun(5, NAME), ImageRun(8, NAME))


@dataclass
class FakeMedia:
    runs: tuple[MediaRun, ...]


@dataclass
class FakeTask:
    media: FakeMedia | None


def task_with(*runs: MediaRun) -> Task:
    return cast(Task, FakeTask(FakeMedia(runs)))


@pytest.mark.parametrize(("n_tokens", "n"), [(0, 0), (5, 5), (8, 7), (11, 9), (13, 11)])
def test_positions_are_fewer_than_cells_behind_images(n_tokens: int, n: int) -> None:
    assert n_positions(IMAGES, n_tokens) == n
    assert n_tokens_up_to(IMAGES, n) == n_tokens


def test_an_image_counts_whole_where_a_position_lies_in_it() -> None:
    assert n_tokens_up_to(IMAGES, 6) == 8


def test_an_image_is_never_cut() -> None:
    assert [n_uncut(IMAGES, n) for n in (4, 5, 6, 7, 8, 10, 11, 12)] == [4, 5, 5, 5, 8, 8, 11, 12]


def test_the_image_at_a_token_and_the_next_one_are_found() -> None:
    assert [image_at(IMAGES, n) for n in (4, 5, 6, 8)] == [None, 0, None, 1]
    assert [next_image(IMAGES, n) for n in (0, 5, 6, 8, 9)] == [0, 0, 1, 1, None]


def test_a_text_has_a_position_for_every_token() -> None:
    assert (n_positions((), 7), n_tokens_up_to((), 7), n_uncut((), 7)) == (7, 7, 7)


def test_prompts_with_different_images_are_alike_up_to_the_image_and_with_equal_ones_beyond_it() -> None:
    names = ImageNames()
    cat, dog = MediaRun(1, 2, 2, "cat"), MediaRun(1, 2, 2, "dog")
    kept = [names.images_of(task_with(run)) for run in (cat, dog, cat)]
    first, other, same = (named([7, -1, -1, 8], images) for images in kept)
    assert common_prefix(first, other) == 1
    assert common_prefix(first, same) == 4


def test_an_image_of_another_size_is_another_image() -> None:
    names = ImageNames()
    whole, small = (names.images_of(task_with(MediaRun(0, n, n, "cat"))) for n in (4, 2))
    assert whole[0].name is not small[0].name


def test_a_name_is_given_up_with_the_last_prompt_that_has_it() -> None:
    names = ImageNames()
    first = names.images_of(task_with(MediaRun(0, 1, 1, "cat")))[0].name.number
    gc.collect()
    assert names.images_of(task_with(MediaRun(0, 1, 1, "cat")))[0].name.number != first


def test_the_images_of_a_prompt_are_found_by_its_tokens_as_long_as_somebody_has_their_names() -> None:
    names = ImageNames()
    cat, dog = MediaRun(1, 2, 1, "cat"), MediaRun(4, 3, 3, "dog")
    images = names.images_of(task_with(cat, dog, MediaRun(7, 2, 1, "cat")))
    tokens = named([7, -1, -1, 8, -1, -1, -1, -1, -1, 9], images)
    assert names.images_in(tokens) == images
    assert names.images_in([1, 2, 3]) == ()
    del images
    gc.collect()
    assert names.images_in(tokens) is None


def test_a_text_has_no_images() -> None:
    assert ImageNames().images_of(cast(Task, FakeTask(None))) == ()
