"""Bodies in, requests and answers out, through llama.cpp's templates and schema.

Any thread, several at once; a call may take milliseconds and must not run on an event loop. One whose `abandoned` is
set meanwhile ends soon.
"""

from __future__ import annotations

import json
from typing import Any

from pyggml_server.abandoned import NEVER_ABANDONED, Abandoned
from pyggml_server.errors import NotLoadedError, RequestRefusedError
from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.request import Request
from pyggml_server.request_kind import RequestKind

_COUNTS = {
    RequestKind.OAI_CHAT: lib.PYGGML_TRANSLATE_COUNT_CHAT,
    RequestKind.OAI_RESPONSES: lib.PYGGML_TRANSLATE_COUNT_RESPONSES,
    RequestKind.ANTHROPIC: lib.PYGGML_TRANSLATE_COUNT_ANTHROPIC,
}


class Translator:
    """What the web side may ask of a loaded model. `owner` keeps the native server alive."""

    def __init__(self, handle: Any, owner: Any) -> None:
        self._loaded: Any = handle
        self._owner = owner
        self.has_media: bool = owner.has_media

    @property
    def _handle(self) -> Any:
        if self._loaded is None:
            raise NotLoadedError("the model is not loaded")
        return self._loaded

    def close(self) -> None:
        """Let go of the model. No request may be open; every call raises NotLoadedError from now on."""
        self._loaded = self._owner = None

    def request(
        self, kind: RequestKind, body: bytes, abandoned: Abandoned = NEVER_ABANDONED, sound: bytes | None = None
    ) -> Request:
        """Translate a body that asks for a computation to tasks. Raises RequestRefusedError.

        sound  the file that came with a transcription's body.
        """
        out = ffi.new("pyggml_request **")
        refusal = ffi.new("pyggml_bytes *")
        flag = ffi.from_buffer("int32_t[]", abandoned.flag)
        file, file_size = (ffi.NULL, 0) if sound is None else (sound, len(sound))
        call(lib.pyggml_request_parse, self._handle, int(kind), body, len(body), file, file_size, flag, out, refusal)
        if out[0] == ffi.NULL:
            raise _refused(take_bytes(refusal))
        return Request(out[0], self._owner)

    def tokenize(self, body: bytes, abandoned: Abandoned = NEVER_ABANDONED) -> bytes:
        """The answer to POST /tokenize. Raises RequestRefusedError."""
        return self._translate(lib.PYGGML_TRANSLATE_TOKENIZE, body, abandoned)

    def detokenize(self, body: bytes, abandoned: Abandoned = NEVER_ABANDONED) -> bytes:
        """The answer to POST /detokenize. Raises RequestRefusedError."""
        return self._translate(lib.PYGGML_TRANSLATE_DETOKENIZE, body, abandoned)

    def apply_template(self, body: bytes, abandoned: Abandoned = NEVER_ABANDONED) -> bytes:
        """The answer to POST /apply-template. Raises RequestRefusedError."""
        return self._translate(lib.PYGGML_TRANSLATE_APPLY_TEMPLATE, body, abandoned)

    def count_tokens(self, kind: RequestKind, body: bytes, abandoned: Abandoned = NEVER_ABANDONED) -> bytes:
        """How many tokens the prompt of a chat has, as the API of `kind` answers it. Raises RequestRefusedError."""
        return self._translate(_COUNTS[kind], body, abandoned)

    def slot_file(self, body: bytes) -> tuple[str, str]:
        """The file that a body names for a slot: as it names it, and its path. Raises RequestRefusedError."""
        file = json.loads(self._translate(lib.PYGGML_TRANSLATE_SLOT_FILE, body))
        return file["filename"], file["path"]

    def controlled_completion(self, body: bytes) -> str:
        """The id of the completion whose reasoning a control request ends. Raises RequestRefusedError."""
        completion_id: str = json.loads(self._translate(lib.PYGGML_TRANSLATE_CONTROL, body))["id"]
        return completion_id

    def adapters(self) -> bytes:
        """The answer to GET /lora-adapters."""
        return self._describe(lib.PYGGML_DESCRIBE_ADAPTERS)

    def set_adapters(self, body: bytes) -> bytes:
        """The answer to POST /lora-adapters: scales for what is translated from now on. Raises RequestRefusedError."""
        return self._translate(lib.PYGGML_TRANSLATE_SET_ADAPTERS, body)

    def props(self) -> bytes:
        """The answer to GET /props."""
        return self._describe(lib.PYGGML_DESCRIBE_PROPS)

    def models(self) -> bytes:
        """The answer to GET /v1/models."""
        return self._describe(lib.PYGGML_DESCRIBE_MODELS)

    def _translate(self, translation: int, body: bytes, abandoned: Abandoned = NEVER_ABANDONED) -> bytes:
        out, refusal = ffi.new("pyggml_bytes *"), ffi.new("pyggml_bytes *")
        flag = ffi.from_buffer("int32_t[]", abandoned.flag)
        call(lib.pyggml_translate, self._handle, translation, body, len(body), flag, out, refusal)
        if out.data == ffi.NULL:
            raise _refused(take_bytes(refusal))
        return take_bytes(out)

    def _describe(self, description: int) -> bytes:
        out = ffi.new("pyggml_bytes *")
        call(lib.pyggml_describe, self._handle, description, out)
        return take_bytes(out)


def _refused(error: bytes) -> RequestRefusedError:
    return RequestRefusedError(int(json.loads(error)["code"]), error)
