"""The images and sounds of a task's prompt: which of its tokens they are, and their encoding.

Engine thread, but for `encode`, which one other thread may run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyggml_server.native.border import StateError, call, ffi, lib, take_bytes


@dataclass(frozen=True, slots=True)
class MediaRun:
    """`n_tokens` tokens of a prompt from `start` on that are an image, or part of a sound, and take `n_pos` positions.

    content_id  equal for equal files.
    saved       what llama-server's slot files have of it: all of this, and nothing of the image or the sound itself.
    """

    start: int
    n_tokens: int
    n_pos: int
    content_id: str
    saved: bytes = b""

    @classmethod
    def of_saved(cls, start: int, saved: bytes) -> MediaRun:
        """One that was saved to a file. Any thread. Raises StateError where these bytes are none."""
        n_tokens, n_pos, content_id = ffi.new("int32_t *"), ffi.new("int32_t *"), ffi.new("pyggml_bytes *")
        arguments = (saved, len(saved), n_tokens, n_pos, content_id)
        call(lib.pyggml_saved_run_read, *arguments, error=StateError)
        return cls(start, n_tokens[0], n_pos[0], take_bytes(content_id).decode("utf-8", "replace"), saved)


class Media:
    """All images and sounds of a prompt; what is encoded here, the other tasks of that prompt have too."""

    def __init__(self, handle: Any, owner: Any) -> None:
        self._handle = ffi.gc(handle, lib.pyggml_media_free)
        self._owner = owner  # keeps the loaded server alive
        self.runs = tuple(self._run(i) for i in range(lib.pyggml_media_n_runs(handle)))

    @classmethod
    def of(cls, task: Any, owner: Any) -> Media | None:
        """That of a native task, or None where its prompt has no images."""
        out = ffi.new("pyggml_media **")
        call(lib.pyggml_task_media, task, out)
        return None if out[0] == ffi.NULL else cls(out[0], owner)

    def _run(self, i: int) -> MediaRun:
        run = ffi.new("pyggml_media_run *")
        lib.pyggml_media_get_run(self._handle, i, run)
        saved = ffi.new("pyggml_bytes *")
        call(lib.pyggml_media_save_run, self._handle, i, saved)
        return MediaRun(run.start, run.n_tokens, run.n_pos, ffi.string(run.id).decode(), take_bytes(saved))

    def is_encoded(self, i: int) -> bool:
        """Whether image i can be decoded now."""
        return bool(lib.pyggml_media_is_encoded(self._handle, i))

    def encode(self, i: int) -> None:
        """Encode image i, and those after it that the encoder takes with it. Blocks; the GIL is free meanwhile.

        One at a time for one model. Raises PyggmlError.
        """
        call(lib.pyggml_media_encode, self._handle, i)
