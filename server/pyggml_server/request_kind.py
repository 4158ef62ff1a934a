"""Which API a request body speaks. Pure data: importable without the compiled module."""

from __future__ import annotations

from enum import IntEnum


class RequestKind(IntEnum):
    """The numbers are those of `enum pyggml_request_kind` in the native shim."""

    COMPLETION = 0  # POST /completion: llama.cpp's own JSON
    OAI_COMPLETION = 1  # POST /v1/completions
    OAI_CHAT = 2  # POST /v1/chat/completions
    OAI_RESPONSES = 3  # POST /v1/responses
    ANTHROPIC = 4  # POST /v1/messages
    INFILL = 5  # POST /infill
    EMBEDDING = 6  # POST /embedding: llama.cpp's own JSON
    OAI_EMBEDDING = 7  # POST /v1/embeddings
    RERANK = 8  # POST /rerank
    TRANSCRIPTION = 9  # POST /v1/audio/transcriptions: a form with a sound

    @property
    def is_chat(self) -> bool:
        """Whether its body has messages, which may have images and sounds in them."""
        return self in (RequestKind.OAI_CHAT, RequestKind.OAI_RESPONSES, RequestKind.ANTHROPIC)

    @property
    def may_name_media(self) -> bool:
        """Whether images and sounds in its body may be addresses, from which this server fetches them."""
        return self.is_chat or self in (RequestKind.EMBEDDING, RequestKind.OAI_EMBEDDING)

    @property
    def generates(self) -> bool:
        """Whether the answer is text, which may be streamed."""
        return self not in (RequestKind.EMBEDDING, RequestKind.OAI_EMBEDDING, RequestKind.RERANK)
