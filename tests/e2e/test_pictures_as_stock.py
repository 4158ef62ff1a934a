"""Pictures, sounds and videos for a model that has only text: refused in llama-server's words, wherever they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.program import ServerProcess

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
VIDEO = {"type": "input_video", "input_video": {"url": "data:video/mp4;base64,AAAA"}}
MULTIMODAL = {"prompt_string": "what is <__media__>", "multimodal_data": ["AAAA"]}


@pytest.mark.parametrize("part", [PICTURE, SOUND, VIDEO, {"type": "smell"}], ids=["picture", "sound", "video", "smell"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/chat/completions/input_tokens", "/apply-template"])
def test_a_chat_with_more_than_text_is_refused(ours: ServerProcess, stock: ServerProcess, part: Any, path: str) -> None:
    content = [{"type": "text", "text": "what is this"}, part]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    assert assert_same_answer(ours, stock, "POST", path, body)[0] != 200


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
@pytest.mark.parametrize("prompt", [MULTIMODAL, [MULTIMODAL], ["text", MULTIMODAL]], ids=["alone", "list", "mixed"])
def test_a_prompt_with_more_than_text_is_refused(
    ours: ServerProcess, stock: ServerProcess, path: str, prompt: Any
) -> None:
    assert assert_same_answer(ours, stock, "POST", path, {"prompt": prompt, "n_predict": 2})[0] != 200


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/audio/transcriptions"])
@pytest.mark.parametrize(
    "upload", [{"files": {"file": ("a.wav", b"RIFF")}, "data": {"model": "m"}}, {"json": {}}], ids=["form", "JSON"]
)
def test_a_sound_to_write_down_is_refused(ours: ServerProcess, stock: ServerProcess, path: str, upload: Any) -> None:
    assert assert_same_answer(ours, stock, "POST", path, **upload)[0] == 501


def test_a_picture_for_the_messages_api_is_refused(ours: ServerProcess, stock: ServerProcess) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = [{"type": "text", "text": "what is this"}, {"type": "image", "source": source}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    assert assert_same_answer(ours, stock, "POST", "/v1/messages", body)[0] != 200
