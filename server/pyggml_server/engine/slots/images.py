"""Images among the tokens that a slot holds. Engine thread; values and arithmetic, no cells.

An image takes consecutive tokens of a prompt, its run, and one cell for each. In a slot's token list these tokens have
a negative number that stands for the image's content: token lists that begin alike have the same images. With M-RoPE a
run takes fewer positions than cells, so what is asked of the memory by position is counted here. Half
a minute or so of a sound is an image here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

if TYPE_CHECKING:
    from pyggml_server.native.media import MediaRun
    from pyggml_server.native.task import Task

_FIRST_NUMBER = -2  # llama.cpp's own -1 is no token


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ImageName:
    """One image: the number of its tokens, how many they are, and how many positions they take.

    saved  what slot files have of it.

    An image that comes when nothing has its name any more gets another number.
    """

    number: int
    n_tokens: int
    n_pos: int
    saved: bytes = b""


@dataclass(frozen=True, slots=True)
class ImageRun:
    """An image, from the token `start` on."""

    start: int
    name: ImageName

    @property
    def n_tokens(self) -> int:
        return self.name.n_tokens

    @property
    def n_pos(self) -> int:
        return self.name.n_pos

    @property
    def end(self) -> int:
        return self.start + self.n_tokens


Images = tuple[ImageRun, ...]  # of one prompt, in their order


class ImageNames:
    """The names in use. Images are told apart by the hash of their content and by their tokens and positions."""

    def __init__(self) -> None:
        self._names: WeakValueDictionary[tuple[str, int, int], ImageName] = WeakValueDictionary()
        self._by_number: WeakValueDictionary[int, ImageName] = WeakValueDictionary()
        self._numbers = itertools.count(_FIRST_NUMBER, -1)

    def images_of(self, task: Task) -> Images:
        """The images of the task's prompt."""
        return () if task.media is None else self.images_of_runs(task.media.runs)

    def images_of_runs(self, runs: Iterable[MediaRun]) -> Images:
        """Those that take these tokens of a prompt."""
        return tuple(ImageRun(run.start, self._name(run)) for run in runs)

    def images_in(self, tokens: list[int]) -> Images | None:
        """The images among a prompt's tokens. None where nothing else has the name of one of them any more."""
        places = np.flatnonzero(np.array(tokens, dtype=np.int32) <= _FIRST_NUMBER)
        images: list[ImageRun] = []
        for place in places.tolist():
            if images and place < images[-1].end:
                continue
            name = self._by_number.get(tokens[place])
            if name is None:
                return None
            images.append(ImageRun(place, name))
        return tuple(images)

    def _name(self, run: MediaRun) -> ImageName:
        key = run.content_id, run.n_tokens, run.n_pos
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = ImageName(next(self._numbers), run.n_tokens, run.n_pos, run.saved)
            self._by_number[name.number] = name
        return name


def named(tokens: list[int], images: Images) -> list[int]:
    """A prompt's tokens with the numbers of its images."""
    for run in images:
        tokens[run.start : run.end] = [run.name.number] * run.n_tokens
    return tokens


def n_positions(images: Images, n_tokens: int) -> int:
    """Positions that the first `n_tokens` tokens take. None of their images may be cut."""
    return n_tokens - sum(run.n_tokens - run.n_pos for run in images if run.end <= n_tokens)


def n_tokens_up_to(images: Images, n_positions_max: int) -> int:
    """The first tokens that take so many positions: an image that begins before there counts whole."""
    n_tokens = n_positions_max
    for run in images:
        if run.start >= n_tokens:
            break
        n_tokens = max(n_tokens + run.n_tokens - run.n_pos, run.end)
    return n_tokens


def n_uncut(images: Images, n_tokens: int) -> int:
    """At most so many tokens, and no image among them that is not whole."""
    return next((run.start for run in images if run.start < n_tokens < run.end), n_tokens)


def image_at(images: Sequence[ImageRun], position: int) -> int | None:
    """Which of the images begins at this token, or None."""
    return next((i for i, run in enumerate(images) if run.start == position), None)


def next_image(images: Sequence[ImageRun], position: int) -> int | None:
    """Which of the images is the first one from this token on, or None."""
    return next((i for i, run in enumerate(images) if run.start >= position), None)
