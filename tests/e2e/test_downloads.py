"""Models from the hub, from an address and from a registry, over TLS: what is asked, kept, told and refused."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.download.look_alike import COMMIT, TOKEN, Answer, Hub, Proxy, Registry, file_answer, sha256
from tests.e2e.conftest import running
from tests.e2e.program import FOREIGN_PREFIXES, PATIENCE_S, our_program
from tests.native.short_model import shorten
from tests.vision_models import write_gemma_like

FLAGS = ["--port", "0", "-c", "512", "-t", "1", "--no-warmup", "--cache-ram", "0", "-fit", "off"]
REPOSITORY = "user/model-GGUF"
CHAT = {"messages": [{"role": "user", "content": "Name three seas."}], "max_tokens": 8, "temperature": 0}
PARTIAL = ".downloadInProgress"


@pytest.fixture(scope="session")
def small_model(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """One layer of SmolLM2."""
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    shorten(smollm2_path, path, n_layers=1)
    return path.read_bytes()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def environment(hub: Hub, authority_file: Path, cache: Path) -> dict[str, str]:
    """The hub's look-alike in its place, and a cache of this test's own."""
    return {
        "HF_ENDPOINT": hub.site.url,
        "SSL_CERT_FILE": str(authority_file),
        "LLAMA_CACHE": str(cache),
        "NO_PROXY": "localhost,127.0.0.1",
    }


def refusal(environment: dict[str, str], *flags: str) -> str:
    """What a start that fails says in its last line but one; it must end with 1, and without a traceback."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    done = subprocess.run(
        [our_program(), *flags, *FLAGS],
        env={**own, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "cleaning up before exit" not in line]
    assert lines[-1].endswith("exiting due to model loading error")
    return re.sub(r"^[\d.]+ E srv +\w+: ", "", lines[-2])


def blobs(cache: Path) -> set[str]:
    """What is there of files; the lock is none."""
    return {path.name for path in (cache / "models--user--model-GGUF" / "blobs").glob("[!.]*")}


def test_a_model_of_the_hub_is_downloaded_once_and_chats(
    hub: Hub, environment: dict[str, str], cache: Path, smollm2_path: Path
) -> None:
    model = smollm2_path.read_bytes()
    hub.repositories[REPOSITORY] = {"model-Q4_1.gguf": model, "README.md": b"a model card"}
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment) as server:
        answer = server.post("/v1/chat/completions", CHAT).json()
        assert answer["usage"]["completion_tokens"] == 8
        assert answer["model"] == REPOSITORY
        snapshot = cache / "models--user--model-GGUF" / "snapshots" / COMMIT / "model-Q4_1.gguf"
        assert server.get("/props").json()["model_path"] == str(snapshot)
    assert blobs(cache) == {sha256(model)}
    assert len(hub.files.paths("GET")) == 1
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment) as server:
        assert server.post("/v1/chat/completions", CHAT).json()["choices"] == answer["choices"]
    hub.stop()
    for more in ([], ["--offline"]):
        with running(our_program(), ["-hf", REPOSITORY, *more, *FLAGS], environment) as server:
            assert server.post("/v1/chat/completions", CHAT).json()["choices"] == answer["choices"]
    assert len(hub.files.paths("GET")) == 1


def test_the_quant_and_the_file_that_are_named_are_taken(
    hub: Hub, environment: dict[str, str], small_model: bytes
) -> None:
    hub.repositories[REPOSITORY] = {
        "model-Q4_K_M.gguf": b"not this one",
        "model-Q4_1.gguf": small_model,
        "other.gguf": small_model + bytes(32),
    }
    for flags, name in (
        ([f"{REPOSITORY}:q4_1"], "model-Q4_1.gguf"),
        ([REPOSITORY, "--hf-file", "other.gguf"], "other.gguf"),
    ):
        with running(our_program(), ["-hf", *flags, *FLAGS], environment):
            pass
        assert hub.files.paths("GET")[-1].endswith(f"/{name}")


def test_a_model_in_several_files_comes_whole(
    hub: Hub, environment: dict[str, str], smollm2_path: Path, tmp_path: Path
) -> None:
    shorten(smollm2_path, tmp_path / "part.gguf", n_layers=1, n_tensors_per_file=6)
    parts = {path.name: path.read_bytes() for path in tmp_path.glob("part-*.gguf")}
    assert len(parts) == 2
    hub.repositories[REPOSITORY] = parts
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment) as server:
        assert server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200
    hub.loose = {f"/files/{name}": file_answer(body) for name, body in parts.items()}
    first = f"{hub.site.url}/files/{min(parts)}"
    with running(our_program(), ["-mu", first, *FLAGS], environment) as server:
        assert server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200
    assert {path.rpartition("/")[2] for path in hub.site.paths("GET") if path.startswith("/files/")} == set(parts)


def test_a_download_that_breaks_off_is_continued(
    hub: Hub, environment: dict[str, str], cache: Path, small_model: bytes
) -> None:
    hub.repositories[REPOSITORY] = {"model.gguf": small_model}
    hub.files.cut_after = [1_000_000]
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment):
        pass
    assert [request.headers.get("range") for request in hub.files.requests if request.method == "GET"] == [
        None,
        "bytes=1000000-",
    ]
    assert blobs(cache) == {sha256(small_model)}


def test_an_end_in_mid_download_comes_at_once_and_leaves_what_is_there(
    hub: Hub, environment: dict[str, str], cache: Path, small_model: bytes
) -> None:
    hub.repositories[REPOSITORY] = {"model.gguf": small_model}
    hub.files.cut_after = [1_000_000]
    is_half, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        is_half.set()
        is_over.wait(PATIENCE_S)

    hub.files.on_cut = hold
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    with subprocess.Popen([our_program(), "-hf", REPOSITORY, *FLAGS], env={**own, **environment}) as server:
        assert is_half.wait(PATIENCE_S)
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_S) == 0
    is_over.set()
    assert blobs(cache) == {sha256(small_model) + PARTIAL}
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment):
        pass
    (resumed,) = [request.headers["range"] for request in hub.files.requests if "range" in request.headers]
    assert 0 < int(resumed.removeprefix("bytes=").removesuffix("-")) <= 1_000_000
    assert blobs(cache) == {sha256(small_model)}


def test_a_file_of_an_address_is_downloaded_again_only_when_it_changed(
    hub: Hub, environment: dict[str, str], cache: Path, small_model: bytes
) -> None:
    url = f"{hub.site.url}/files/model.gguf"
    newer = small_model + bytes(32)
    for content, n_downloads in (small_model, 1), (small_model, 1), (newer, 2):
        hub.loose["/files/model.gguf"] = file_answer(content)
        with running(our_program(), ["-mu", url, *FLAGS], environment) as server:
            assert server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200
        assert len(hub.site.paths("GET")) == n_downloads
        assert (cache / "model.gguf").read_bytes() == content
    assert sorted(path.name for path in cache.glob("[!.]*")) == ["model.gguf", "model.gguf.etag"]


def test_half_of_an_older_version_is_not_continued_with_a_newer_one(
    hub: Hub, environment: dict[str, str], cache: Path, small_model: bytes
) -> None:
    hub.loose["/files/model.gguf"] = file_answer(small_model)
    cache.mkdir()
    (cache / f"model.gguf{PARTIAL}").write_bytes(b"an older version")
    (cache / f"model.gguf{PARTIAL}.version").write_text('"older"', encoding="utf-8")
    with running(our_program(), ["-mu", f"{hub.site.url}/files/model.gguf", *FLAGS], environment):
        pass
    assert (cache / "model.gguf").read_bytes() == small_model


def test_a_model_of_a_registry_is_found_downloaded_and_kept(
    registry: Registry, environment: dict[str, str], cache: Path, small_model: bytes
) -> None:
    registry.models["ai/small:1-layer"] = small_model
    name = f"{registry.host}/ai/small:1-layer"
    with running(our_program(), ["--docker-repo", name, *FLAGS], environment) as server:
        assert server.get("/v1/models").json()["data"][0]["id"] == name
    path = cache / (re.sub("[/:]", "_", name) + ".gguf")
    assert path.read_bytes() == small_model
    registry.stop()
    for more in ([], ["--offline"]):
        with running(our_program(), ["--docker-repo", name, *more, *FLAGS], environment):
            pass


def test_the_proxy_of_the_environment_is_used(
    hub: Hub, proxy: Proxy, environment: dict[str, str], small_model: bytes
) -> None:
    hub.repositories[REPOSITORY] = {"model.gguf": small_model}
    environment.update(HTTPS_PROXY=proxy.url, NO_PROXY="")
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment):
        pass
    hosts = {site.url.removeprefix("https://") for site in (hub.site, hub.files)}
    assert set(proxy.targets) == hosts


def test_a_gated_model_needs_the_token_and_no_other_host_sees_it(
    hub: Hub, environment: dict[str, str], small_model: bytes
) -> None:
    hub.repositories[REPOSITORY] = {"model.gguf": small_model}
    hub.gated.add(REPOSITORY)
    refused = refusal(environment, "-hf", REPOSITORY)
    assert refused.startswith(
        f"-hf {REPOSITORY}: GET {hub.site.url}/api/models/{REPOSITORY}/refs: answered with 401 Unauthorized "
        f'"Access to model {REPOSITORY} is restricted": set HF_TOKEN'
    )
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], {**environment, "HF_TOKEN": TOKEN}):
        pass
    assert all("authorization" not in request.headers for request in hub.files.requests)


def test_a_model_for_images_is_downloaded_with_its_encoder(
    hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    files = write_gemma_like(tmp_path)
    names = {"model-Q8_0.gguf": files.model, "mmproj-model-f16.gguf": files.mmproj}
    hub.repositories[REPOSITORY] = {name: path.read_bytes() for name, path in names.items()}
    with running(our_program(), ["-hf", REPOSITORY, "--no-mmproj", *FLAGS], environment) as server:
        assert server.get("/props").json()["modalities"]["vision"] is False
    assert [path.rpartition("/")[2] for path in hub.files.paths("GET")] == ["model-Q8_0.gguf"]
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment) as server:
        assert server.get("/props").json()["modalities"]["vision"] is True
    with running(our_program(), ["-hf", REPOSITORY, "--offline", *FLAGS], environment) as server:
        assert server.get("/props").json()["modalities"]["vision"] is True
    assert sorted(path.rpartition("/")[2] for path in hub.files.paths("GET")) == sorted(names)


def test_an_encoder_comes_from_an_address(hub: Hub, environment: dict[str, str], tmp_path: Path) -> None:
    files = write_gemma_like(tmp_path)
    hub.loose["/files/eyes.gguf"] = file_answer(files.mmproj.read_bytes())
    flags = ["-m", str(files.model), "-mmu", f"{hub.site.url}/files/eyes.gguf", *FLAGS]
    with running(our_program(), flags, environment) as server:
        assert server.get("/props").json()["modalities"]["vision"] is True
    hub.loose.clear()
    assert refusal(environment, "-m", str(files.model), "-mmu", f"{hub.site.url}/files/none.gguf").startswith(
        f"-mmu: HEAD {hub.site.url}/files/none.gguf: answered with 404"
    )


def test_a_draft_model_of_the_hub_is_downloaded_too(hub: Hub, environment: dict[str, str], small_model: bytes) -> None:
    hub.repositories[REPOSITORY] = {"model-Q8_0.gguf": small_model}
    hub.repositories["user/draft-GGUF"] = {"draft-Q8_0.gguf": small_model + bytes(32)}
    with running(our_program(), ["-hf", REPOSITORY, "-hfd", "user/draft-GGUF", *FLAGS], environment) as server:
        assert server.post("/completion", {"prompt": "a", "n_predict": 2}).status_code == 200
    assert {path.rpartition("/")[2] for path in hub.files.paths("GET")} == {"model-Q8_0.gguf", "draft-Q8_0.gguf"}


def test_a_damaged_file_is_refused_and_removed(
    hub: Hub, environment: dict[str, str], cache: Path, small_model: bytes
) -> None:
    hub.repositories[REPOSITORY] = {"model.gguf": small_model}
    hub.damaged.add("model.gguf")
    assert "the download was damaged and is removed; start again" in refusal(environment, "-hf", REPOSITORY)
    assert blobs(cache) == set()
    hub.damaged.clear()
    with running(our_program(), ["-hf", REPOSITORY, *FLAGS], environment):
        pass


def out_of_order(hub: Hub) -> None:
    hub.status = 503


def of_weights_only(hub: Hub) -> None:
    hub.repositories[REPOSITORY] = {"model.safetensors": b"x"}


def of_other_quants(hub: Hub) -> None:
    hub.repositories[REPOSITORY] = {"model-Q8_0.gguf": b"x", "model-F16.gguf": b"x"}


def nothing(hub: Hub) -> None:
    """An empty hub."""


@pytest.mark.parametrize(
    ("prepare", "flags", "words"),
    [
        (nothing, ["-hf", "a/b"], ["-hf a/b: GET ", "/api/models/a/b/refs: answered with 404", "look at the spelling"]),
        (nothing, ["-hf", "a"], ["expected <user>/<model>[:quant]"]),
        (nothing, ["-hf", "a/b c"], ["-hf a/b c: not the name of a repository: expected user/model[:quant]"]),
        (nothing, ["-hf", "a/b", "--offline"], ["-hf a/b: nothing of it is in the cache (", "without --offline"]),
        (out_of_order, ["-hf", "a/b"], ['503 Service Unavailable "the hub is out of order": try again later']),
        (of_weights_only, ["-hf", REPOSITORY], ["the repository has no GGUF file of it", "-GGUF"]),
        (of_other_quants, ["-hf", f"{REPOSITORY}:Q2_K"], ["quant Q2_K: it has model-Q8_0.gguf, model-F16.gguf"]),
        (of_other_quants, ["-hf", REPOSITORY, "--hf-file", "x.gguf"], ["no file x.gguf: it has model-Q8_0.gguf"]),
        (nothing, ["-mu", "https://localhost:1/x.gguf"], ["-mu: HEAD https://localhost:1/x.gguf: ", "refused"]),
        (nothing, ["-mu", "x.gguf"], ["-mu x.gguf: expected an address that begins with https://"]),
        (nothing, ["-mu", "https://x/y.gguf", "--offline"], ["y.gguf is missing, and --offline"]),
        (nothing, ["--docker-repo", "localhost:1/a/b"], ["--docker-repo localhost:1/a/b: GET https://localhost:1/v2/"]),
        (nothing, ["--docker-repo", "a", "--offline"], ["ai_a_latest.gguf is missing, and --offline"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else getattr(value, "__name__", ""),
)
def test_what_cannot_be_had_is_told_in_one_line(
    prepare: Callable[[Hub], None], flags: list[str], words: list[str], hub: Hub, environment: dict[str, str]
) -> None:
    prepare(hub)
    said = refusal(environment, *flags)
    assert [word for word in words if word not in said] == [], said
    assert not re.search(r"http://127\.0\.0\.1", said), "the forwarder's own address"


def test_a_hub_that_cannot_be_reached_is_told_in_one_line(environment: dict[str, str], hub: Hub) -> None:
    hub.stop()
    said = refusal(environment, "-hf", "a/b")
    assert said.startswith(f"-hf a/b: GET {hub.site.url}/api/models/a/b/refs: ")
    assert "--offline" in said


def test_a_file_that_vanishes_between_two_questions_is_told_in_one_line(hub: Hub, environment: dict[str, str]) -> None:
    hub.repositories[REPOSITORY] = {"model.gguf": b"x"}
    hub.files.answer = lambda _: Answer(status=410)
    said = refusal(environment, "-hf", REPOSITORY)
    assert said.startswith(f"-hf {REPOSITORY}: ")
    assert "/resolve/" in said
    assert "answered by 127.0.0.1 with 410 Gone" in said
