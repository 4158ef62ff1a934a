"""Images as llama-server of the same tree reads and answers them, on two small models that see: every API, streamed or
not, and what is wrong with an image."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from build_support.layout import of_this_clone
from tests.e2e.comparing import ask, assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.picture_files import PICTURE_FILES
from tests.vision_models import WRITERS, VisionModel, png, png_of

MARKER = "<__media__>"
FLAGS = ["--host", "127.0.0.1", "--port", "0", "-c", "2048", "-np", "2", "-t", "1", "--kv-unified", "--no-warmup"]
FLAGS += ["-fit", "off", "--cache-ram", "0", "--metrics", "--slots", "--image-max-tokens", "64"]
PHOTO = (of_this_clone().tree / "tools/mtmd/test-1.jpeg").read_bytes()
SMALL = png(64, 48, seed=1)
NARROW = png(8, 200, seed=2)


@pytest.fixture(scope="module", params=list(WRITERS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What --media-path names."""
    folder = tmp_path_factory.mktemp("media")
    (folder / "photo.jpeg").write_bytes(PHOTO)
    (folder / "notes.txt").write_text("no image")
    return folder


def flags(model: VisionModel, folder: Path) -> list[str]:
    return [*model.argv, *FLAGS, "--media-path", str(folder), "--slot-save-path", str(folder)]


@pytest.fixture(scope="module")
def seeing(model: VisionModel, folder: Path) -> Iterator[ServerProcess]:
    with running(our_program(), flags(model, folder), {"LLAMA_MEDIA_MARKER": MARKER}) as server:
        yield server


@pytest.fixture(scope="module")
def stock_seeing(model: VisionModel, folder: Path) -> Iterator[ServerProcess]:
    with running(stock_program(), flags(model, folder), {"LLAMA_MEDIA_MARKER": MARKER}) as server:
        yield server


def data_uri(image: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(image).decode()


def chat(*images: bytes | str, **more: object) -> dict[str, object]:
    """A chat whose message has text around every image; a string is an address."""
    content: list[dict[str, object]] = [{"type": "text", "text": "What is this:"}]
    for image in images:
        url = image if isinstance(image, str) else data_uri(image)
        content += [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "and this?"}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 16, "temperature": 0.0, **more}


def completion(image: bytes, **more: object) -> dict[str, object]:
    data = [base64.b64encode(image).decode()]
    prompt = {"prompt_string": f"Look at {MARKER} and say", "multimodal_data": data}
    return {"prompt": prompt, "n_predict": 16, "temperature": 0.0, "ignore_eos": True, **more}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("images", [[SMALL], [PHOTO], [NARROW, SMALL, PHOTO], []], ids=["small", "jpeg", "three", "no"])
def test_a_chat_is_answered_alike(
    seeing: ServerProcess, stock_seeing: ServerProcess, images: list[bytes], stream: bool
) -> None:
    body = chat(*images, stream=stream, cache_prompt=False)
    assert assert_same_answer(seeing, stock_seeing, "POST", "/v1/chat/completions", body)[0] == 200


def test_a_second_turn_keeps_as_much_of_the_first(seeing: ServerProcess, stock_seeing: ServerProcess) -> None:
    first = chat(SMALL, id_slot=0)
    said = assert_same_answer(seeing, stock_seeing, "POST", "/v1/chat/completions", first)[2]
    text = said["choices"][0]["message"]["content"]
    messages: Any = first["messages"]
    turn = [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": "And now?"}]
    answer = assert_same_answer(
        seeing, stock_seeing, "POST", "/v1/chat/completions", {**first, "messages": turn, "max_tokens": 8}
    )
    assert answer[2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    other = chat(png(64, 48, seed=7), id_slot=0)
    ours, stock = (ask(server, "POST", "/v1/chat/completions", other)[2] for server in (seeing, stock_seeing))
    assert ours["choices"] == stock["choices"]  # with a window llama-server keeps less of what stands before the image


@pytest.mark.parametrize("we_save", [True, False], ids=["ours", "stock's"])
def test_a_slot_file_with_images_is_read_by_the_other_server(
    seeing: ServerProcess, stock_seeing: ServerProcess, model: VisionModel, we_save: bool
) -> None:
    saver, reader = (seeing, stock_seeing) if we_save else (stock_seeing, seeing)
    path, first = "/v1/chat/completions", chat(SMALL, NARROW, id_slot=0)
    said = ask(saver, "POST", path, first)[2]["choices"][0]["message"]["content"]
    file = {"filename": f"{model.model.stem}.bin"}
    saved = ask(saver, "POST", "/slots/0?action=save", file)
    restored = ask(reader, "POST", "/slots/1?action=restore", file)
    assert saved[0] == restored[0] == 200
    assert restored[2]["n_restored"] == saved[2]["n_saved"] > 100
    messages: Any = first["messages"]
    turn = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": "And now?"}]
    answers = [
        ask(server, "POST", path, {**first, "messages": turn, "id_slot": slot})[2]
        for server, slot in ((saver, 0), (reader, 1))
    ]
    assert answers[0]["choices"] == answers[1]["choices"]
    if "qwen" in model.model.name:  # a window goes on from a checkpoint, which llama-server's files lack
        assert [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers] == [
            saved[2]["n_saved"]
        ] * 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_responses_with_an_image_say_what_a_chat_says(seeing: ServerProcess, stream: bool) -> None:
    content = [{"type": "input_text", "text": "What is this"}, {"type": "input_image", "image_url": data_uri(SMALL)}]
    asked = {"input": [{"role": "user", "content": content}], "max_output_tokens": 12, "temperature": 0}
    status, _, answer = ask(seeing, "POST", "/v1/responses", {**asked, "stream": stream})
    assert status == 200
    whole = answer["events"][-1]["response"] if stream else answer
    parts = [{"type": "text", "text": "What is this"}, {"type": "image_url", "image_url": {"url": data_uri(SMALL)}}]
    same = {"messages": [{"role": "user", "content": parts}], "max_tokens": 12, "temperature": 0}
    said = ask(seeing, "POST", "/v1/chat/completions", same)[2]["choices"][0]["message"]["content"]
    assert whole["output"][0]["content"][0]["text"] == said


def n_input_tokens(answer: Any) -> int:
    usage = answer["usage"]
    return int(usage["input_tokens"]) + int(usage["cache_read_input_tokens"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_messages_are_answered_alike(seeing: ServerProcess, stock_seeing: ServerProcess, stream: bool) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(SMALL).decode()}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this"}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 12, "temperature": 0, "stream": stream}
    ours, stock = (ask(server, "POST", "/v1/messages", body) for server in (seeing, stock_seeing))
    assert ours[0] == stock[0] == 200
    if not stream:
        assert ours[2]["content"] == stock[2]["content"]
        assert n_input_tokens(ours[2]) == n_input_tokens(stock[2])


@pytest.mark.parametrize("image", [SMALL, PHOTO, NARROW], ids=["small", "jpeg", "narrow"])
def test_a_completion_is_answered_alike(seeing: ServerProcess, stock_seeing: ServerProcess, image: bytes) -> None:
    body = completion(image, cache_prompt=False)
    assert assert_same_answer(seeing, stock_seeing, "POST", "/completion", body)[0] == 200


def test_several_prompts_of_which_some_have_images_are_answered_alike(
    seeing: ServerProcess, stock_seeing: ServerProcess
) -> None:
    prompts = [completion(SMALL)["prompt"], "only text", completion(NARROW)["prompt"]]
    body = {**completion(SMALL), "prompt": prompts, "cache_prompt": False}
    assert assert_same_answer(seeing, stock_seeing, "POST", "/completion", body)[0] == 200


@pytest.mark.parametrize("path", ["/v1/models", "/props"])
def test_what_the_model_can_do_is_told_alike(seeing: ServerProcess, stock_seeing: ServerProcess, path: str) -> None:
    ours, stock = (server.get(path).json() for server in (seeing, stock_seeing))
    if path == "/props":
        assert ours["modalities"] == {"vision": True, "video": False, "audio": False}
        assert stock["modalities"]["vision"] is True
    else:
        assert ours["models"][0]["capabilities"] == stock["models"][0]["capabilities"] == ["completion", "multimodal"]


def test_the_tokens_of_a_chat_are_counted_alike(seeing: ServerProcess, stock_seeing: ServerProcess) -> None:
    answer = assert_same_answer(seeing, stock_seeing, "POST", "/v1/chat/completions/input_tokens", chat(PHOTO, SMALL))
    assert answer[2]["input_tokens"] > 16


@pytest.mark.parametrize(
    "url",
    ["file://photo.jpeg", "file://notes.txt", "file://nothing.png", "file://../photo.jpeg", "file:///etc/passwd"],
)
def test_a_file_is_read_from_the_folder_for_it_only(
    seeing: ServerProcess, stock_seeing: ServerProcess, url: str
) -> None:
    ours, stock = (ask(server, "POST", "/v1/chat/completions", chat(url)) for server in (seeing, stock_seeing))
    assert (ours[0] == 200) is (stock[0] == 200) is (url == "file://photo.jpeg")


@pytest.mark.parametrize(
    "url",
    [
        "malformed",
        "data:text/html;base64,aGVsbG8=",
        "data:application/octet-stream;base64,aGVsbG8=",
        "data:video/mp4;base64,aGVsbG8=",
        "data:image/png;base64,aGVsbG8=",
        "data:image/png,x",
        "data:,",
        "ftp://x",
    ],
)
def test_what_is_no_image_is_refused_as_there(seeing: ServerProcess, stock_seeing: ServerProcess, url: str) -> None:
    ours, stock = (ask(server, "POST", "/v1/chat/completions", chat(url)) for server in (seeing, stock_seeing))
    assert ours[0] == 400
    assert stock[0] in (400, 500)


@pytest.mark.parametrize("name", PICTURE_FILES)
def test_a_format_is_read_or_refused_as_there(seeing: ServerProcess, stock_seeing: ServerProcess, name: str) -> None:
    """What an EXIF direction says is ignored by both, and of an animation both take the first picture."""
    body = chat(PICTURE_FILES[name], max_tokens=4, cache_prompt=False)
    if name in ("webp", "tiff"):
        ours, stock = (ask(server, "POST", "/v1/chat/completions", body) for server in (seeing, stock_seeing))
        assert (ours[0], stock[0] == 200) == (400, False)
        assert "send an image as JPEG, PNG, BMP or GIF" in ours[2]["error"]["message"]
    else:
        assert assert_same_answer(seeing, stock_seeing, "POST", "/v1/chat/completions", body)[0] == 200


# -- what llama-server has no answer to --------------------------------------------------------------------------------


def error_of(server: ServerProcess, body: dict[str, object], path: str = "/v1/chat/completions") -> str:
    status, _, answer = ask(server, "POST", path, body)
    assert status == 400, answer
    message: str = answer["error"]["message"]
    return message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1"])
def test_an_address_of_a_private_network_is_not_asked(seeing: ServerProcess, host: str) -> None:
    message = error_of(seeing, chat(f"http://{host}:{seeing.url.rpartition(':')[2]}/health"))
    assert "is an address of a private network" in message


def test_an_image_of_too_many_pixels_is_refused_before_it_is_read(seeing: ServerProcess) -> None:
    bomb = png_of(15000, 15000, b"")
    assert "15000 x 15000 pixels: send one of at most 67 million" in error_of(seeing, chat(bomb))
    assert "15000 x 15000 pixels" in error_of(seeing, completion(bomb), "/completion")


def jpeg_of(width: int, height: int) -> bytes:
    """The photo, with another size in its header."""
    at = PHOTO.index(b"\xff\xc0") + 5
    return PHOTO[:at] + struct.pack(">HH", height, width) + PHOTO[at + 4 :]


HUGE = {
    "jpeg": jpeg_of(65500, 65500),
    "gif": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0) + bytes(6) + PICTURE_FILES["animated"][19:],
    "bmp": b"BM" + struct.pack("<IIIIiiHHII", 54, 0, 54, 40, 60000, 60000, 1, 24, 0, 0) + bytes(16),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_size_in_a_header_is_refused_before_the_file_is_read(seeing: ServerProcess, name: str) -> None:
    assert "pixels: send one of at most 67 million" in error_of(seeing, chat(HUGE[name]))


def test_bad_files_leave_the_stream_of_a_neighbour_alone(seeing: ServerProcess) -> None:
    body = completion(SMALL, n_predict=100, stream=True, cache_prompt=False)
    alone = ask(seeing, "POST", "/completion", body)
    bad = [
        *HUGE.values(),
        PICTURE_FILES["webp"],
        png_of(16, 16, bytes(300 << 20)),
        png_of(15000, 15000, b""),
    ]
    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(ask, seeing, "POST", "/completion", body)
        for file in bad:
            error_of(seeing, chat(file))
        assert told(neighbour.result()) == told(alone)


def told(answer: Any) -> str:
    """What the events of a streamed completion say."""
    return "".join(event["content"] for event in answer[2]["events"])


def test_a_small_image_that_unpacks_to_a_large_one_is_refused(seeing: ServerProcess) -> None:
    bomb = png_of(16, 16, bytes(300 << 20))
    assert len(bomb) < 400 << 10
    assert "far larger than the image" in error_of(seeing, chat(bomb))


def test_a_jpeg_that_is_decoded_over_and_over_is_refused(seeing: ServerProcess) -> None:
    bomb = PHOTO[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" * 2000 + b"\xff\xd9"
    assert "scans: save it anew" in error_of(seeing, chat(bomb))


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (3, 5)])
def test_an_image_of_an_odd_shape_ends_nobody_s_server(seeing: ServerProcess, size: tuple[int, int]) -> None:
    assert ask(seeing, "POST", "/v1/chat/completions", chat(png(*size)))[0] in (200, 400)
    assert ask(seeing, "POST", "/v1/chat/completions", chat())[0] == 200


def test_a_chat_with_more_images_than_the_context_holds_is_refused(seeing: ServerProcess) -> None:
    assert "exceeds the available context size" in error_of(seeing, chat(*([PHOTO] * 130)))


def test_a_prompt_that_ends_with_an_image_is_refused_or_answered(seeing: ServerProcess) -> None:
    """Models whose images have an end of their own go on from that."""
    prompt = {"prompt_string": f"Look at {MARKER}", "multimodal_data": [base64.b64encode(SMALL).decode()]}
    assert ask(seeing, "POST", "/completion", {"prompt": prompt, "n_predict": 2})[0] in (200, 400)


def test_an_image_that_the_model_takes_whole_needs_a_batch_for_it(model: VisionModel, folder: Path) -> None:
    """llama-server ends itself here where an image's tokens attend to each other."""
    small_batch = [*flags(model, folder), "-b", "64", "-ub", "8"]
    with running(our_program(), small_batch) as server:
        status, _, answer = ask(server, "POST", "/v1/chat/completions", chat(SMALL))
        if "gemma" in model.model.name:
            assert "raise --ubatch-size, which is 8" in answer["error"]["message"]
        else:
            assert status == 200


def test_a_file_of_another_model_is_refused_at_the_start(model: VisionModel) -> None:
    server = ServerProcess([our_program(), "-m", str(model.model), "--mmproj", str(model.model), *FLAGS])
    assert server.wait(120) == 1
    assert "failed to load multimodal model" in server.whole_log()
