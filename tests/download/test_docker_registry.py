"""Names of models in registries, and the way from one to its file."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from pyggml_server.download.answers import Failures
from pyggml_server.download.docker_registry import Reference, TokenAuth, find_model
from pyggml_server.download.ports import DownloadError

from tests.download.look_alike import Answer, Registry, json_answer, sha256


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "file_name"),
    [
        ("gemma3", "registry-1.docker.io", "ai/gemma3", "latest", "ai_gemma3_latest.gguf"),
        ("gemma3:4B-Q4_K_M", "registry-1.docker.io", "ai/gemma3", "4B-Q4_K_M", "ai_gemma3_4B-Q4_K_M.gguf"),
        ("me/gemma3:x", "registry-1.docker.io", "me/gemma3", "x", "me_gemma3_x.gguf"),
        ("localhost:5000/a/b:x", "localhost:5000", "a/b", "x", "localhost_5000_a_b_x.gguf"),
        ("localhost/b", "localhost", "b", "latest", "localhost_b_latest.gguf"),
        ("my.registry/b", "my.registry", "b", "latest", "my.registry_b_latest.gguf"),
    ],
)
def test_a_name_is_read_as_docker_reads_it(text: str, registry: str, repository: str, tag: str, file_name: str) -> None:
    reference = Reference.parse(text)
    assert reference == Reference(registry, repository, tag)
    assert reference.file_name == file_name


@pytest.mark.parametrize("text", ["", ":tag", "a/../b", "A/b", "a b", "a//", "https://x/y"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(DownloadError, match=re.escape(f"--docker-repo {text}: expected")):
        Reference.parse(text)


def look_for(registry: Registry, authority_file: Path, name: str) -> str:
    import ssl

    reference = Reference.parse(f"{registry.host}/{name}")
    with httpx2.Client(verify=ssl.create_default_context(cafile=authority_file)) as client:
        return find_model(client, reference, TokenAuth(reference.registry), Failures())


def test_a_model_is_found_with_a_token_that_the_registry_gives(registry: Registry, authority_file: Path) -> None:
    registry.models["a/b:x"] = b"model"
    assert look_for(registry, authority_file, "a/b:x") == f"sha256:{sha256(b'model')}"
    asked = [request.path.partition("?")[0] for request in registry.site.requests]
    assert asked == ["/v2/a/b/manifests/x", "/token", "/v2/a/b/manifests/x"]


def test_a_model_that_is_not_there_is_an_error_that_says_what_was_asked_and_answered(
    registry: Registry, authority_file: Path
) -> None:
    with pytest.raises(DownloadError) as refused:
        look_for(registry, authority_file, "a/b:x")
    assert str(refused.value).startswith(
        f'GET {registry.site.url}/v2/a/b/manifests/x: answered with 404 Not Found "manifest unknown": '
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (json_answer({"layers": [{"mediaType": "text/plain", "digest": "sha256:" + "1" * 64}]}), "no GGUF file"),
        (json_answer({"layers": [{"mediaType": "x.gguf", "digest": "../../etc"}]}), "no GGUF file"),
        (json_answer([]), "not a manifest"),
        (json_answer({"layers": ["x"]}), "not a manifest"),
        (Answer(b"<html>"), "not a manifest"),
    ],
)
def test_a_manifest_without_a_model_is_an_error(
    registry: Registry, authority_file: Path, answer: Answer, reason: str
) -> None:
    registry.site.answer = lambda _: answer
    with pytest.raises(DownloadError, match=reason):
        look_for(registry, authority_file, "a/b:x")


@pytest.mark.parametrize("realm", ["", "no address"])
def test_a_challenge_that_leads_nowhere_is_an_error(registry: Registry, authority_file: Path, realm: str) -> None:
    registry.site.answer = lambda _: json_answer({}, 401, WWW_Authenticate=f'Bearer realm="{realm}"')
    with pytest.raises(DownloadError, match="manifests/x: "):
        look_for(registry, authority_file, "a/b:x")
