"""Chats with images on a device: their states leave and come back asynchronously, and generation runs ahead behind
images whose positions are fewer than their cells."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pyggml_server.messages import SlotAction, SlotVerb
from pyggml_server.native.media import Media

from tests.engine.harness import EngineHarness
from tests.hearing_models import MEDIA_WRITERS, file_for
from tests.native.engine_on_simdev.chats import engine, is_at_rest
from tests.vision_models import WRITERS, VisionModel


@pytest.fixture(scope="module", params=list(MEDIA_WRITERS))
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    return MEDIA_WRITERS[request.param](tmp_path_factory.mktemp(request.param))


def chat(harness: EngineHarness, *seeds: int) -> dict[str, object]:
    props = harness.translator.props()
    marker = json.loads(props)["media_marker"]
    told = "Look at" + "".join(f" {marker} and {seed}" for seed in seeds)
    data = [base64.b64encode(file_for(props, seed)).decode() for seed in seeds]
    prompt = {"prompt_string": told, "multimodal_data": data}
    return {"prompt": prompt, "n_predict": 40, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}


def noted_encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which file of its request was encoded, for each that is from here on."""
    encoded: list[int] = []
    encode = Media.encode

    def noted(media: Media, i: int) -> None:
        encoded.append(i)
        encode(media, i)

    monkeypatch.setattr(Media, "encode", noted)
    return encoded


def test_parked_asynchronously_they_say_what_they_say_without_a_park(seeing: VisionModel) -> None:
    """Also by way of staging memory, and without running ahead."""
    kinds: list[dict[str, Any]] = [{}, {"every_n_tokens": 5}, {"every_n_tokens": 5, "staging_mib": 4}]
    texts = []
    for options in [*kinds, {"every_n_tokens": 5, "use_async": False}]:
        with engine(seeing.model, "--mmproj", str(seeing.mmproj), "--no-mmproj-offload", **options) as harness:
            texts.append(harness.run(**chat(harness, 1, 2)).text())
            assert (harness.engine.snapshot().counters.preemptions_total > 0) == bool(options)
            assert is_at_rest(harness)
    assert len(set(texts[0])) > 5
    assert set(texts) == {texts[0]}


@pytest.mark.parametrize("seeing", list(WRITERS), indirect=True)  # a sound takes its encoder longer than an answer
def test_chats_with_images_that_overflow_the_pool_all_finish(seeing: VisionModel) -> None:
    flags = ["--mmproj", str(seeing.mmproj), "--no-mmproj-offload"]
    with engine(seeing.model, *flags, n_ctx=512) as harness:
        chats = [harness.start(**{**chat(harness, i, i + 1), "n_predict": 90}) for i in range(4)]
        harness.wait(*chats)
        assert [one.result()["tokens_predicted"] for one in chats] == [90] * 4
        assert harness.engine.snapshot().counters.preemptions_total > 0
        assert is_at_rest(harness)


def test_their_prompts_go_to_the_prompt_cache_asynchronously_and_come_back(
    seeing: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = noted_encodings(monkeypatch)
    flags = ["--mmproj", str(seeing.mmproj), "--no-mmproj-offload"]
    with engine(seeing.model, *flags, n_ctx=1024, n_slots=2) as harness:
        body = {**chat(harness, 1, 2), "cache_prompt": True, "id_slot": 0}
        first = harness.run(**body).text()
        for other in ("Something else altogether, and long enough", "And then something else again"):
            harness.run(prompt=other, n_predict=2, temperature=0.0, id_slot=0)
        assert harness.run(**body).text() == first
        assert encoded == [0, 1]
        harness.run(**{**body, **chat(harness, 1, 3), "cache_prompt": True})
        assert encoded == [0, 1, 1]
        assert is_at_rest(harness)


def test_a_slot_file_with_images_is_written_and_read_asynchronously(
    seeing: VisionModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = ["--mmproj", str(seeing.mmproj), "--no-mmproj-offload"]
    encoded = noted_encodings(monkeypatch)

    def act(harness: EngineHarness, verb: SlotVerb) -> dict[str, object]:
        return harness.call(lambda task_id: SlotAction(task_id, verb, 0, "slot", str(tmp_path / "slot")))

    with engine(seeing.model, *flags, n_ctx=1024, n_slots=2) as harness:
        first = harness.run(**{**chat(harness, 1, 2), "cache_prompt": True}, id_slot=0).text()
        saved = act(harness, SlotVerb.SAVE)
        assert is_at_rest(harness)
    with engine(seeing.model, *flags, n_ctx=1024, n_slots=2) as harness:  # in other cells another letter may win
        assert act(harness, SlotVerb.RESTORE)["n_restored"] == saved["n_saved"]
        assert harness.run(**{**chat(harness, 1, 2), "cache_prompt": True}, id_slot=0).text() == first
        assert encoded == [0, 1]
        assert is_at_rest(harness)
