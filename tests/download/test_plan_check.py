"""A plan that misses a file ends the start with a sentence that says what is there instead and what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyggml_server.download import plan_check
from pyggml_server.download.answers import Failure
from pyggml_server.download.ports import DownloadError, Plan, PlannedFile, PresetRepositoryError, Repository, Sources

ONLINE = Sources(False, "a/b:Q9", "", "", "", "", "", "", "", "/cache", "/hub")
OFFLINE = replace(ONLINE, is_offline=True)
FAILURE = Failure("GET https://x/y", "answered with 404 Not Found", "look at the spelling")


def complaint(repository: Repository, sources: Sources = ONLINE, failure: Failure | None = None) -> str:
    with pytest.raises(DownloadError) as refused:
        plan_check.check(Plan((repository,)), sources, failure)
    return str(refused.value)


def test_a_repository_that_cannot_be_asked_tells_what_failed() -> None:
    said = complaint(Repository("-hf", "a/b"), failure=FAILURE)
    assert said == "-hf a/b: GET https://x/y: answered with 404 Not Found: look at the spelling"


def test_a_name_that_nobody_was_asked_for_is_no_name() -> None:
    assert complaint(Repository("-hf", "a/b//c")).endswith("expected user/model[:quant]")


def test_a_quant_that_is_not_there_tells_which_are() -> None:
    said = complaint(Repository("-hf", "a/b:Q9", others=("b-Q4_0.gguf", "README.md", "b-Q8_0.gguf")))
    assert said == "-hf a/b:Q9: the repository has no model file of quant Q9: it has b-Q4_0.gguf, b-Q8_0.gguf"


def test_a_file_that_is_not_there_tells_which_are() -> None:
    said = complaint(Repository("-hf", "a/b", others=("b.gguf",)), replace(ONLINE, hf_file="c.gguf"))
    assert said == "-hf a/b: the repository has no file c.gguf: it has b.gguf"


def test_a_draft_s_file_is_looked_for_by_its_own_name() -> None:
    sources = replace(ONLINE, hf_file="c.gguf", draft_hf_file="d.gguf")
    assert "no file d.gguf" in complaint(Repository("-hfd", "a/b", others=("b.gguf",)), sources)


def test_a_repository_without_gguf_files_says_where_to_look() -> None:
    assert "-GGUF" in complaint(Repository("-hf", "a/b", others=("model.safetensors",)))


def test_very_many_files_are_not_all_told() -> None:
    said = complaint(Repository("-hf", "a/b", others=tuple(f"{i}.gguf" for i in range(1000))))
    assert said.endswith("19.gguf, ...")


def test_a_repository_that_is_not_in_the_cache_needs_the_network() -> None:
    said = complaint(Repository("-hf", "a/b"), OFFLINE)
    assert "/hub" in said
    assert said.endswith("start once without --offline")


def test_a_preset_repository_is_for_a_router() -> None:
    with pytest.raises(PresetRepositoryError, match=r"preset\.ini"):
        plan_check.check(Plan((Repository("-hf", "a/b", is_preset=True),)), ONLINE, None)


def test_a_draft_cannot_come_from_a_preset_repository() -> None:
    said = complaint(Repository("-hfd", "a/b", is_preset=True, others=("preset.ini",)))
    assert said.startswith("-hfd a/b: the repository has no GGUF file")


def test_a_preset_of_the_cache_is_named_as_a_file() -> None:
    said = complaint(Repository("-hf", "a/b", is_preset=True, cached_preset="/hub/preset.ini"), OFFLINE)
    assert said.endswith("start with --models-preset /hub/preset.ini instead")


def test_offline_a_file_that_is_missing_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    file = PlannedFile("https://x/y.gguf", str(tmp_path / "y.gguf"))
    plan_check.check(Plan(url_files=(file,)), ONLINE, None)
    with pytest.raises(DownloadError, match=r"y\.gguf is missing, and --offline"):
        plan_check.check(Plan(url_files=(file,)), OFFLINE, None)
    Path(file.path).touch()
    plan_check.check(Plan(url_files=(file,)), OFFLINE, None)


def test_a_file_that_only_the_cache_knows_and_has_not_is_named(tmp_path: Path) -> None:
    file = PlannedFile("", str(tmp_path / "gone.gguf"))
    with pytest.raises(DownloadError, match=r"gone\.gguf is missing: start once with a network"):
        plan_check.check(Plan((Repository("-hf", "a/b", files=(file,)),)), ONLINE, None)
