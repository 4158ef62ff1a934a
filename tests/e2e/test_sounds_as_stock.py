"""Sounds as llama-server of the same tree hears and answers them, on a small model that hears: chats, prompts with
multimodal data, transcriptions, streamed or not, and what is wrong with a sound."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from build_support.layout import of_this_clone
from tests.e2e.comparing import ask, assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.hearing_models import N_TOKENS, SECONDS_A_RUN, wav, write_ultravox_like
from tests.vision_models import VisionModel, png
from tests.web.form_bodies import TYPE, field, form

MARKER = "<__media__>"
FLAGS = ["--host", "127.0.0.1", "--port", "0", "-c", "2048", "-np", "2", "-t", "1", "--kv-unified", "--no-warmup"]
FLAGS += ["-fit", "off", "--cache-ram", "0"]
SPEECH = (of_this_clone().tree / "tools/mtmd/test-2.mp3").read_bytes()
SHORT = wav(1, seed=1)
STEREO = wav(0.5, seed=2, rate=44100, n_channels=2)
LONG = wav(SECONDS_A_RUN + 5, seed=3, rate=8000)
SOUNDS = {"wav": SHORT, "stereo": STEREO, "long": LONG, "mp3": SPEECH}
TRANSCRIPTIONS = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    return write_ultravox_like(tmp_path_factory.mktemp("ultravox"))


@pytest.fixture(scope="module")
def hearing(model: VisionModel) -> Iterator[ServerProcess]:
    with running(our_program(), [*model.argv, *FLAGS], {"LLAMA_MEDIA_MARKER": MARKER}) as server:
        yield server


@pytest.fixture(scope="module")
def stock_hearing(model: VisionModel) -> Iterator[ServerProcess]:
    with running(stock_program(), [*model.argv, *FLAGS], {"LLAMA_MEDIA_MARKER": MARKER}) as server:
        yield server


def in_base64(sound: bytes) -> str:
    return base64.b64encode(sound).decode()


def chat(*sounds: bytes, **more: object) -> dict[str, object]:
    content: list[dict[str, object]] = [{"type": "text", "text": "What is this:"}]
    for sound in sounds:
        content.append({"type": "input_audio", "input_audio": {"data": in_base64(sound), "format": "wav"}})
        content.append({"type": "text", "text": "and this?"})
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 16, "temperature": 0.0, **more}


def transcription(sound: bytes, **fields: str) -> dict[str, Any]:
    """The options of a request with a form."""
    return {"files": {"file": ("a.wav", sound, "audio/wav")}, "data": {"temperature": "0", **fields}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("names", [["wav"], ["stereo", "mp3"], ["long", "wav"]], ids="+".join)
def test_a_chat_is_answered_alike(
    hearing: ServerProcess, stock_hearing: ServerProcess, names: list[str], stream: bool
) -> None:
    body = chat(*(SOUNDS[name] for name in names), stream=stream, cache_prompt=False)
    assert assert_same_answer(hearing, stock_hearing, "POST", "/v1/chat/completions", body)[0] == 200


def test_what_is_said_depends_on_what_is_heard(hearing: ServerProcess, stock_hearing: ServerProcess) -> None:
    path, sounds = "/v1/chat/completions", (SHORT, STEREO, SPEECH)
    answers = [assert_same_answer(hearing, stock_hearing, "POST", path, chat(sound))[2] for sound in sounds]
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 3


def test_every_half_minute_takes_its_tokens(hearing: ServerProcess, stock_hearing: ServerProcess) -> None:
    path = "/v1/chat/completions/input_tokens"
    counts = [
        assert_same_answer(hearing, stock_hearing, "POST", path, chat(sound))[2]["input_tokens"]
        for sound in (SHORT, LONG)
    ]
    assert counts[1] == counts[0] + N_TOKENS


def test_a_second_turn_keeps_as_much_of_the_first(hearing: ServerProcess, stock_hearing: ServerProcess) -> None:
    first = chat(LONG, id_slot=0)
    path = "/v1/chat/completions"
    said = assert_same_answer(hearing, stock_hearing, "POST", path, first)[2]["choices"][0]["message"]["content"]
    messages: Any = first["messages"]
    turn = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": "And now?"}]
    answer = assert_same_answer(hearing, stock_hearing, "POST", path, {**first, "messages": turn, "max_tokens": 8})
    assert answer[2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 2 * N_TOKENS


def test_a_completion_is_answered_alike(hearing: ServerProcess, stock_hearing: ServerProcess) -> None:
    prompt = {"prompt_string": f"Listen to {MARKER} and say", "multimodal_data": [in_base64(SHORT)]}
    body = {"prompt": prompt, "n_predict": 16, "temperature": 0.0, "cache_prompt": False}
    assert assert_same_answer(hearing, stock_hearing, "POST", "/completion", body)[0] == 200


@pytest.mark.parametrize("path", ["/v1/models", "/props"])
def test_what_the_model_can_do_is_told_alike(hearing: ServerProcess, stock_hearing: ServerProcess, path: str) -> None:
    ours, stock = (server.get(path).json() for server in (hearing, stock_hearing))
    if path == "/props":
        assert ours["modalities"] == stock["modalities"] == {"vision": False, "video": False, "audio": True}
    else:
        assert ours["models"][0]["capabilities"] == stock["models"][0]["capabilities"] == ["completion", "multimodal"]


# -- transcriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["false", "true"], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", SOUNDS)
def test_a_transcription_is_answered_alike(
    hearing: ServerProcess, stock_hearing: ServerProcess, name: str, stream: str
) -> None:
    form_of = transcription(SOUNDS[name], stream=stream, max_tokens="12")
    answer = assert_same_answer(hearing, stock_hearing, "POST", TRANSCRIPTIONS, **form_of)
    assert answer[0] == 200
    whole = answer[2]["events"][-1] if stream == "true" else answer[2]
    assert whole["type"] == "transcript.text.done"
    assert len(whole["text"]) > 5


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": "4", "prompt": "Write down:", "language": "en", "response_format": "json"},
        {"max_tokens": "4", "model": "whisper-1", "temperature": "0.0"},
        {"response_format": "srt"},
        {"response_format": "vtt"},
        {"response_format": "verbose_json"},
        {"response_format": "text"},
        {"max_tokens": "many"},
        {"max_tokens": "99999999999999999999999"},
        {"temperature": "warm"},
    ],
    ids=str,
)
def test_its_fields_are_read_alike(
    hearing: ServerProcess, stock_hearing: ServerProcess, fields: dict[str, str]
) -> None:
    form_of = transcription(SHORT, **fields)
    status = assert_same_answer(hearing, stock_hearing, "POST", "/audio/transcriptions", **form_of)[0]
    assert (status == 200) is ("4" in fields.values())


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(field("prompt", b"Listen")), TYPE),
        (form(field("file", b"no file, a text")), TYPE),
        (b'{"file": "AAAA"}', "application/json"),
        (b'{"file', "application/json"),
        (b"", "application/json"),
    ],
    ids=["none", "text", "JSON", "broken", "empty"],
)
def test_without_a_sound_it_is_refused_alike(
    hearing: ServerProcess, stock_hearing: ServerProcess, body: bytes, content_type: str
) -> None:
    headers = {"Content-Type": content_type}
    assert assert_same_answer(hearing, stock_hearing, "POST", TRANSCRIPTIONS, body, headers=headers)[0] == 400


# -- what is wrong with a sound ----------------------------------------------------------------------------------------

HEADER = SHORT[:44]


def claiming(n_bytes: int, rate: int = 16000) -> bytes:
    """A sound of one second in all but its header, which says that it has so many bytes, in 16 bits and one channel."""
    parts = [b"RIFF", struct.pack("<I", n_bytes + 36), b"WAVEfmt "]
    parts += [struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16), b"data", struct.pack("<I", n_bytes)]
    return b"".join(parts) + SHORT[44:]


def silent_flac(n_samples: int) -> bytes:
    """A FLAC file with nothing but a header, which claims so many samples."""
    about = struct.pack(">HH", 4096, 4096) + bytes(6) + (16000 << 44 | 15 << 36 | n_samples).to_bytes(8, "big")
    return b"fLaC" + b"\x80\x00\x00\x22" + about + bytes(16)


def error_of(server: ServerProcess, sound: bytes) -> str:
    """Whatever way it comes in, the answer is the same."""
    status, _, answer = ask(server, "POST", "/v1/chat/completions", chat(sound))
    assert status == 400, answer
    by_form = ask(server, "POST", TRANSCRIPTIONS, **transcription(sound))
    assert by_form[2] == answer
    message: str = answer["error"]["message"]
    return message


@pytest.mark.parametrize("sound", [b"no sound", b"RIFF\0\0\0\0WAVE", HEADER[:30], b"\xff\xfb" + bytes(100)])
def test_what_is_no_sound_is_refused_as_there(
    hearing: ServerProcess, stock_hearing: ServerProcess, sound: bytes
) -> None:
    error = error_of(hearing, sound)
    assert error.startswith(("Failed to load image or audio file", "the sound is empty"))
    assert ask(stock_hearing, "POST", "/v1/chat/completions", chat(sound))[0] in (400, 500)


def test_a_sound_that_claims_hours_is_refused_before_it_is_read(hearing: ServerProcess) -> None:
    assert "takes 16000 seconds: send one of at most 7200" in error_of(hearing, claiming(32000, rate=1))
    assert "send one of at most 7200" in error_of(hearing, silent_flac((1 << 36) - 1))


def test_a_sound_that_is_shorter_than_it_says_is_refused(hearing: ServerProcess) -> None:
    assert "says that it has 3600 seconds, and has 0: save it anew" in error_of(hearing, silent_flac(3600 * 16000))


@pytest.mark.parametrize("sound", [SPEECH[: len(SPEECH) // 2], SHORT[:10001]], ids=["mp3", "wav"])
def test_a_sound_that_ends_in_the_middle_is_answered_as_there(
    hearing: ServerProcess, stock_hearing: ServerProcess, sound: bytes
) -> None:
    body = chat(sound, max_tokens=4, cache_prompt=False)
    assert assert_same_answer(hearing, stock_hearing, "POST", "/v1/chat/completions", body)[0] == 200


@pytest.mark.parametrize("n_bytes", [3600 * 32000, 0xFFFFFF00])
def test_of_what_a_wav_file_claims_only_what_is_there_counts(
    hearing: ServerProcess, stock_hearing: ServerProcess, n_bytes: int
) -> None:
    answer = assert_same_answer(hearing, stock_hearing, "POST", "/v1/chat/completions", chat(claiming(n_bytes)))
    assert answer[2]["choices"] == ask(hearing, "POST", "/v1/chat/completions", chat(SHORT))[2]["choices"]


@pytest.mark.parametrize("n_samples", [0, 1])
def test_a_sound_of_no_length_ends_nobody_s_server(hearing: ServerProcess, n_samples: int) -> None:
    """llama-server ends itself over a single sample."""
    assert "the sound is empty" in error_of(hearing, wav(n_samples / 16000))
    assert ask(hearing, "POST", "/v1/chat/completions", chat())[0] == 200


def test_the_shortest_sound_is_answered(hearing: ServerProcess, stock_hearing: ServerProcess) -> None:
    body = chat(wav(2 / 16000), cache_prompt=False)
    assert assert_same_answer(hearing, stock_hearing, "POST", "/v1/chat/completions", body)[0] == 200


def test_a_chat_with_more_sound_than_the_context_holds_is_refused(hearing: ServerProcess) -> None:
    status, _, answer = ask(hearing, "POST", "/v1/chat/completions", chat(*[wav(0.1)] * 70))
    assert (status, answer["error"]["type"]) == (400, "exceed_context_size_error")


def test_an_image_for_a_model_that_only_hears_is_refused(hearing: ServerProcess, stock_hearing: ServerProcess) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + in_base64(png(16, 16))}}
    body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 2}
    assert assert_same_answer(hearing, stock_hearing, "POST", "/v1/chat/completions", body)[0] == 500
    prompt = {"prompt_string": f"Look at {MARKER} here", "multimodal_data": [in_base64(png(16, 16))]}
    assert ask(hearing, "POST", "/completion", {"prompt": prompt, "n_predict": 2})[0] == 400
