"""The thread that encodes: one image at a time, in order, and its end."""

from __future__ import annotations

import threading
from typing import cast

import pytest
from pyggml_server.engine.encoder import Encoder
from pyggml_server.native.media import Media

PATIENCE_S = 60.0


class FakeMedia:
    """Notes what is encoded; image 9 cannot be, and image 0 takes until it is let go."""

    def __init__(self) -> None:
        self.encoded: list[int] = []
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def encode(self, i: int) -> None:
        if i == 0:
            self.has_begun.set()
            assert self.may_end.wait(PATIENCE_S)
        if i == 9:
            raise ValueError("no image")
        self.encoded.append(i)


def test_images_are_encoded_one_after_the_other_and_each_end_wakes_the_engine() -> None:
    media, woken = FakeMedia(), threading.Semaphore(0)
    encoder = Encoder(woken.release)
    asked = [encoder.start(cast(Media, media), i) for i in range(3)]
    assert media.has_begun.wait(PATIENCE_S)
    assert encoder.is_busy
    assert not any(one.done() for one in asked)
    media.may_end.set()
    for one in asked:
        assert one.result(PATIENCE_S) is None
        assert woken.acquire(timeout=PATIENCE_S)
    assert media.encoded == [0, 1, 2]
    assert not encoder.is_busy
    encoder.close()


def test_an_error_is_the_image_s_own_and_wakes_the_engine_too() -> None:
    media, woken = FakeMedia(), threading.Semaphore(0)
    encoder = Encoder(woken.release)
    broken, good = (encoder.start(cast(Media, media), i) for i in (9, 1))
    with pytest.raises(ValueError, match="no image"):
        broken.result(PATIENCE_S)
    assert good.result(PATIENCE_S) is None
    assert woken.acquire(timeout=PATIENCE_S)
    encoder.close()


def test_at_its_end_what_has_not_begun_is_forgotten_and_what_has_is_waited_for() -> None:
    media = FakeMedia()
    encoder = Encoder(lambda: None)
    first, second = (encoder.start(cast(Media, media), i) for i in (0, 1))
    assert media.has_begun.wait(PATIENCE_S)
    closing = threading.Thread(target=encoder.close)
    closing.start()
    while not second.cancelled():
        pass
    assert closing.is_alive()
    media.may_end.set()
    closing.join(PATIENCE_S)
    assert first.done()
    assert media.encoded == [0]
