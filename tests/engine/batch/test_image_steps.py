"""Images and sounds of prompts through the engine, on small models that see or hear: one is a step of its chat, nobody
waits for its encoding but the chat itself, and a chat that was parked says what it would have said."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.slots.checkpoints import N_TOKENS_BEFORE_END
from pyggml_server.messages import Cancelled, Failed, SlotAction, SlotVerb
from pyggml_server.native.border import PyggmlError
from pyggml_server.native.media import Media

from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched
from tests.hearing_models import MEDIA_WRITERS, N_TOKENS, file_for
from tests.vision_models import (
    N_GEMMA_IMAGE_TOKENS,
    WRITERS,
    VisionModel,
    n_qwen_positions,
    n_qwen_tokens,
)

SIZE = (64, 48)
N_PREDICT = 24


@pytest.fixture(scope="module", params=list(MEDIA_WRITERS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    return MEDIA_WRITERS[request.param](tmp_path_factory.mktemp(request.param))


def argv(model: VisionModel, *more: str, n_ctx: int = 1024) -> list[str]:
    sizes = ["-c", str(n_ctx), "-np", "4", "--kv-unified", "-fa", "on", "-t", "1", "--no-warmup", "-fit", "off"]
    return [*model.argv, *sizes, *more]


@pytest.fixture(scope="module")
def plain(model: VisionModel) -> Iterator[EngineHarness]:
    with EngineHarness(argv(model)) as harness:
        yield harness


def picture(harness: EngineHarness, seed: int) -> str:
    """Or a sound, if the model only hears."""
    return base64.b64encode(file_for(harness.translator.props(), seed)).decode()


def prompt(harness: EngineHarness, *seeds: int, text: str = "Look at") -> dict[str, object]:
    """Text, then each image with some text behind it."""
    marker = json.loads(harness.translator.props())["media_marker"]
    told = text + "".join(f" {marker} and {seed}" for seed in seeds)
    return {"prompt_string": told, "multimodal_data": [picture(harness, seed) for seed in seeds]}


def greedy(harness: EngineHarness, *seeds: int, **more: object) -> dict[str, object]:
    fields = {"n_predict": N_PREDICT, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False, **more}
    return {"prompt": prompt(harness, *seeds), **fields}


def texts(running: Running) -> list[str]:
    return [running.text(i) for i in range(len(running.task_ids))]


def cache_n(running: Running) -> int:
    """Tokens of the prompt that were kept."""
    timings = running.result()["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def n_cells(harness: EngineHarness) -> list[int]:
    return [slot.n_cells for slot in harness.engine.snapshot().slots]


def test_what_is_seen_decides_what_is_said(plain: EngineHarness) -> None:
    said = [plain.run(**greedy(plain, *seeds)).text() for seeds in ((1,), (2,), (1,), (1, 2), (2, 1))]
    assert said[0] == said[2]
    assert len(set(said)) == 4


def test_an_image_takes_the_cells_of_its_tokens(plain: EngineHarness, model: VisionModel) -> None:
    n_tokens = {"gemma": N_GEMMA_IMAGE_TOKENS, "qwen": n_qwen_tokens(*SIZE), "ultravox": N_TOKENS}
    n_image = n_tokens[model.model.stem]
    with_image = plain.run(**greedy(plain, 1)).result()["tokens_evaluated"]
    with_two = plain.run(**greedy(plain, 1, 1)).result()["tokens_evaluated"]
    assert isinstance(with_image, int)
    assert isinstance(with_two, int)
    assert with_two - with_image > n_image
    assert n_qwen_positions(*SIZE) < n_qwen_tokens(*SIZE)  # else the model with M-RoPE would show nothing


@pytest.mark.parametrize("every", [1, 7])
def test_a_chat_that_is_parked_again_and_again_says_what_one_says_that_never_was(
    plain: EngineHarness, model: VisionModel, every: int
) -> None:
    expected = plain.run(**greedy(plain, 3, 4)).text()
    with EngineHarness(argv(model), PreemptOptions(every_n_tokens=every)) as harness:
        parked = harness.run(**greedy(harness, 3, 4))
        assert parked.text() == expected
        assert parked.notices().count("preempted") == parked.notices().count("resumed") >= N_PREDICT // every - 1


def overflow(harness: EngineHarness) -> list[str]:
    """What four chats say whose prompts do not fit the pool together. Short answers: with the width of a batch the last
    bits of a result change, and sooner or later another letter wins."""
    chats = [harness.start(**greedy(harness, i, i + 1, n_predict=8)) for i in range(4)]
    harness.wait(*chats)
    return [chat.text() for chat in chats]


def alone(harness: EngineHarness) -> list[str]:
    return [harness.run(**greedy(harness, i, i + 1, n_predict=8)).text() for i in range(4)]


def test_prompts_with_images_that_overflow_the_pool_leave_half_way_and_lose_nothing(
    plain: EngineHarness, model: VisionModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = PreemptOptions(every_n_tokens=3)
    with watched(monkeypatch, caplog), EngineHarness(argv(model, n_ctx=256), options) as harness:
        assert overflow(harness) == alone(plain)
        counters = harness.engine.snapshot().counters
    assert counters.preemptions_total == counters.restores_total >= 4


@pytest.mark.parametrize("model", list(WRITERS), indirect=True)  # a sound takes its encoder longer than an answer
def test_without_host_memory_they_are_computed_again_from_their_images(
    plain: EngineHarness, model: VisionModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pyggml_server.engine.startup.MIB", 1)  # a budget of one byte
    with watched(monkeypatch, caplog), EngineHarness(argv(model, n_ctx=256), PreemptOptions(ram_mib=1)) as harness:
        chats = [harness.start(**greedy(harness, i, i + 1, n_predict=60)) for i in range(4)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert counters.recomputes_total >= 1
    assert [chat.result()["tokens_predicted"] for chat in chats] == [60] * 4
    assert [chat.text()[:8] for chat in chats] == alone(plain)


def test_several_answers_share_the_images_of_their_prompt(plain: EngineHarness, model: VisionModel) -> None:
    expected = plain.run(**greedy(plain, 5)).text()
    assert texts(plain.run(**greedy(plain, 5, n=3))) == [expected] * 3
    with EngineHarness(argv(model), PreemptOptions(every_n_tokens=5)) as harness:
        parked = harness.run(**greedy(harness, 5, n=3))
        assert texts(parked) == [expected] * 3
        assert "resumed" in parked.notices()


def noted_encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which picture of its request was encoded, for each that is from here on."""
    encoded: list[int] = []
    encode = Media.encode

    def noted(media: Media, i: int) -> None:
        encoded.append(i)
        encode(media, i)

    monkeypatch.setattr(Media, "encode", noted)
    return encoded


def test_the_next_turn_keeps_the_image_and_another_image_is_not_taken_for_it(
    plain: EngineHarness, model: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [plain.run(**greedy(plain, *seeds)).text() for seeds in ((6, 7), (7,))]
    encoded = noted_encodings(monkeypatch)
    with EngineHarness(argv(model, "--cache-ram", "0")) as harness:
        first = harness.run(**greedy(harness, 6, cache_prompt=True)).result()
        turn = harness.run(**greedy(harness, 6, 7, cache_prompt=True))
        assert encoded == [0, 1]
        assert cache_n(turn) == first["tokens_evaluated"]
        other = harness.run(**greedy(harness, 7, cache_prompt=True))
        assert encoded == [0, 1, 0]
        assert 0 < cache_n(other) < cache_n(turn)
        assert [turn.text(), other.text()] == expected


def test_while_an_image_is_encoded_others_go_on(plain: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    may_encode, is_encoding = threading.Event(), threading.Event()
    encode = Media.encode

    def slow(media: Media, i: int) -> None:
        is_encoding.set()
        assert may_encode.wait(60)
        encode(media, i)

    expected = plain.run(**greedy(plain, 8)).text()
    monkeypatch.setattr(Media, "encode", slow)
    with_image = plain.start(**greedy(plain, 8))
    assert is_encoding.wait(60)
    other = plain.run(prompt="Once upon", n_predict=50, temperature=0.0, ignore_eos=True)
    assert other.result()["tokens_predicted"] == 50
    assert not with_image.messages
    may_encode.set()
    plain.wait(with_image)
    assert with_image.text() == expected


def test_a_chat_that_is_cancelled_while_its_image_is_encoded_leaves_its_slot(
    plain: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_encode, is_encoding = threading.Event(), threading.Event()

    def slow(_media: Media, _i: int) -> None:
        is_encoding.set()
        assert may_encode.wait(60)

    monkeypatch.setattr(Media, "encode", slow)
    with_image = plain.start(**greedy(plain, 9))
    assert is_encoding.wait(60)
    plain.cancel(with_image)
    plain.wait(with_image)
    assert isinstance(with_image.last(), Cancelled)
    assert not any(slot.is_processing for slot in plain.engine.snapshot().slots)
    may_encode.set()


def test_an_image_that_cannot_be_encoded_ends_its_chat_alone(
    plain: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_media: Media, _i: int) -> None:
        raise PyggmlError("no memory for it")

    other = plain.start(prompt="Once upon", n_predict=100, temperature=0.0, ignore_eos=True)
    monkeypatch.setattr(Media, "encode", broken)
    failed = plain.run(**greedy(plain, 10))
    assert isinstance(failed.last(), Failed)
    assert "failed to process mtmd chunk: no memory for it" in str(failed.error())
    plain.wait(other)
    assert other.result()["tokens_predicted"] == 100


def act(harness: EngineHarness, verb: SlotVerb, slot_id: int, path: Path) -> dict[str, object]:
    return harness.call(lambda task_id: SlotAction(task_id, verb, slot_id, path.name, str(path)))


def test_a_slot_with_images_goes_to_a_file_and_comes_back_in_another_server(
    plain: EngineHarness, model: VisionModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "slot"
    expected = plain.run(**greedy(plain, 11, 15)).text()
    first = plain.run(**greedy(plain, 11, id_slot=1, cache_prompt=True)).result()
    saved = act(plain, SlotVerb.SAVE, 1, file)
    encoded = noted_encodings(monkeypatch)
    with EngineHarness(argv(model, "--cache-ram", "0")) as harness:
        restored = act(harness, SlotVerb.RESTORE, 2, file)
        assert restored["n_restored"] == saved["n_saved"]
        again = act(harness, SlotVerb.SAVE, 2, tmp_path / "again")
        assert again["n_written"] == saved["n_written"]
        turn = harness.run(**greedy(harness, 11, 15, id_slot=2, cache_prompt=True))
        assert encoded == [1]  # the first one is there
        assert cache_n(turn) == first["tokens_evaluated"]
        assert turn.text() == expected
        act(harness, SlotVerb.RESTORE, 2, file)
        other = harness.run(**greedy(harness, 16, id_slot=2, cache_prompt=True))
        assert encoded == [1, 0]  # another image is not taken for it
        assert other.text() == plain.run(**greedy(plain, 16)).text()


def test_a_damaged_file_with_an_image_is_refused_and_the_slot_keeps_its_prompt(
    plain: EngineHarness, tmp_path: Path
) -> None:
    file = tmp_path / "slot"
    first = plain.run(**greedy(plain, 17, id_slot=0, cache_prompt=True)).result()
    act(plain, SlotVerb.SAVE, 0, file)
    whole = bytearray(file.read_bytes())
    n_tokens = int.from_bytes(whole[20:24], "little")
    at = 24 + 4 * n_tokens  # how many images there are, where they begin, and how many bytes each has
    for place, value in ((at, 2), (at, 0), (at + 4, 3), (at + 4, n_tokens), (at + 8, 1 << 30), (at + 12, 1 << 30)):
        damaged = whole.copy()
        damaged[place : place + 4] = value.to_bytes(4, "little")
        file.write_bytes(damaged)
        error = act(plain, SlotVerb.RESTORE, 0, file)
        assert error["code"] == 400, (place, value)
        assert "Unable to restore slot: " in str(error["message"])
    again = plain.run(**greedy(plain, 17, id_slot=0, cache_prompt=True))
    assert cache_n(again) == int(str(first["tokens_evaluated"])) - 1


def test_a_prompt_with_images_goes_to_the_prompt_cache_and_comes_back(
    plain: EngineHarness, model: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slot: every chat takes it from the one before."""
    expected = [plain.run(**greedy(plain, *seeds)).text() for seeds in ((12, 13), (12, 14))]
    encoded = noted_encodings(monkeypatch)
    with EngineHarness(argv(model, "-np", "1")) as harness:
        first = harness.run(**greedy(harness, 12, 13, cache_prompt=True))
        for other in ("Something else altogether, and long enough", "And then something else again"):
            harness.run(prompt=other, n_predict=2, temperature=0.0)
        again = harness.run(**greedy(harness, 12, 13, cache_prompt=True))
        assert encoded == [0, 1]
        n_prompt = int(str(first.result()["tokens_evaluated"]))
        assert n_prompt - 1 - N_TOKENS_BEFORE_END <= cache_n(again) < n_prompt  # with a window from a checkpoint on
        harness.run(prompt="Something else altogether, and long enough", n_predict=2, temperature=0.0)
        other_image = harness.run(**greedy(harness, 12, 14, cache_prompt=True))
        assert encoded[2:] in ([1], [0, 1])  # a window has forgotten the first image by then
        assert cache_n(other_image) < cache_n(again)
        texts = [first.text(), again.text(), other_image.text()]
        assert texts == [expected[0], expected[0], expected[1]]


def test_an_image_larger_than_the_context_is_refused_with_its_size(plain: EngineHarness) -> None:
    seeds = range(40)
    refused = plain.run(**greedy(plain, *seeds))
    error = refused.error()
    assert error is not None
    assert error["type"] == "exceed_context_size_error"
    assert n_cells(plain)
