"""From sources to files: who is asked, what stands in the environment meanwhile, and how it ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from pyggml_server.download.fetch import Download
from pyggml_server.download.ports import DownloadError, Plan, PlannedFile, Repository, Sources

from tests.download.look_alike import Hub, Registry, file_answer, sha256

CONTENT = b"a model" * 1000
PATIENCE_S = 60.0


@dataclass
class FakeModelFiles:
    """llama.cpp's part: it asks the address that it was given, without ways of its own."""

    sources: Sources
    environ: dict[str, str]
    repositories: tuple[Repository, ...] = ()
    asks: str = "api/models"
    url: str = ""
    path: str = ""
    mmproj_url: str = ""
    seen: list[str] = field(default_factory=list)

    def set_model_url(self, url: str, path: str = "") -> None:
        self.url, self.path = url, path or self.path

    def set_mmproj_url(self, url: str) -> None:
        self.mmproj_url = url

    def plan(self) -> Plan:
        self.seen.append(self.environ.get("MODEL_ENDPOINT", ""))
        files = (PlannedFile(self.url, self.path),) if self.url else ()
        return Plan(self.repositories, files)

    def fetch(self) -> None:
        if not self.url and not self.asks:
            return
        url = self.url or self.seen[-1] + self.asks
        answer = requests.get(url, timeout=PATIENCE_S)
        if answer.status_code != 200:
            raise DownloadError(f"Download '{url}' failed with status code: {answer.status_code}")
        Path(self.path).write_bytes(answer.content)


@pytest.fixture(autouse=True)
def _environment(authority_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority_file))
    monkeypatch.setenv("NO_PROXY", "*")


def sources(folder: Path, **given: str | bool) -> Sources:
    values: dict[str, str | bool] = dict.fromkeys(Sources.__slots__, "")
    values |= {"is_offline": False, "cache_folder": str(folder), "hub_cache_folder": str(folder)}
    return Sources(**{**values, **given})  # type: ignore[arg-type]


def run(files: FakeModelFiles) -> None:
    download = Download(files, files.environ)
    download.prepare()
    download.run()


def test_the_forwarder_stands_in_the_hub_s_place_for_as_long_as_it_is_needed(hub: Hub, tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": hub.site.url}
    hub.loose["/api/models"] = file_answer(CONTENT)
    files = FakeModelFiles(sources(tmp_path, hf_repo="a/b"), environ, path=str(tmp_path / "x"))
    run(files)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/hub/", files.seen[0])
    assert Path(files.path).read_bytes() == CONTENT
    assert environ == {"HF_ENDPOINT": hub.site.url}
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(files.seen[0], timeout=PATIENCE_S)


def test_an_endpoint_of_the_user_s_own_is_put_back_after_a_failure_too(hub: Hub, tmp_path: Path) -> None:
    environ = {"MODEL_ENDPOINT": hub.site.url}
    with pytest.raises(DownloadError) as failed:
        run(FakeModelFiles(sources(tmp_path, hf_repo="a/b"), environ))
    assert str(failed.value).startswith(f"-hf a/b: GET {hub.site.url}/api/models: answered with 404 Not Found ")
    assert environ == {"MODEL_ENDPOINT": hub.site.url}


def test_offline_nobody_is_asked(tmp_path: Path) -> None:
    files = FakeModelFiles(sources(tmp_path, docker_repo="gemma3", is_offline=True), {}, asks="")
    (tmp_path / "ai_gemma3_latest.gguf").touch()
    download = Download(files, files.environ)
    download.prepare()
    assert files.environ == {}
    download.run()
    assert (files.url, files.path) == ("", str(tmp_path / "ai_gemma3_latest.gguf"))


def test_the_address_of_an_url_is_told_without_the_forwarder(hub: Hub, tmp_path: Path) -> None:
    url = f"{hub.site.url}/folder/x.gguf?signature=secret"
    files = FakeModelFiles(sources(tmp_path, model_url=url), {}, path=str(tmp_path / "x.gguf"))
    with pytest.raises(DownloadError) as failed:
        run(files)
    assert str(failed.value).startswith(f"-mu: GET {hub.site.url}/folder/x.gguf: answered with 404")
    assert "secret" not in str(failed.value)
    assert "127.0.0.1:" not in str(failed.value)


@pytest.mark.parametrize("url", ["x.gguf", "ftp://x/y.gguf", "https:///x.gguf", "https://x:port/y"])
def test_what_is_no_address_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"^-mu {re.escape(url)}: "):
        run(FakeModelFiles(sources(tmp_path, model_url=url), {}))


def test_an_endpoint_without_a_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"'hub\.example'"):
        run(FakeModelFiles(sources(tmp_path, hf_repo="a/b"), {"HF_ENDPOINT": "hub.example"}))


def test_a_registry_s_file_is_checked(registry: Registry, tmp_path: Path) -> None:
    registry.models["a/b:x"] = CONTENT
    files = FakeModelFiles(sources(tmp_path, docker_repo=f"{registry.host}/a/b:x"), {})
    run(files)
    assert Path(files.path).read_bytes() == CONTENT
    assert files.url.endswith(f"/registry/sha256:{sha256(CONTENT)}")


def test_a_registry_that_is_out_of_order_leaves_what_is_there(
    registry: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = sources(tmp_path, docker_repo=f"{registry.host}/a/b:x", model_path=str(tmp_path / "x.gguf"))
    files = FakeModelFiles(named, {}, asks="")
    with pytest.raises(DownloadError, match="manifest unknown"):
        run(files)
    (tmp_path / "x.gguf").touch()
    run(files)
    assert (files.url, files.path) == ("", str(tmp_path / "x.gguf"))
    assert "which is already here" in caplog.text


def test_an_encoder_by_url_leads_through_the_forwarder_too(hub: Hub, tmp_path: Path) -> None:
    url = f"{hub.site.url}/folder/mmproj.gguf?x=y"
    files = FakeModelFiles(sources(tmp_path, mmproj_url=url), {}, asks="")
    run(files)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/mmproj/mmproj\.gguf\?x=y", files.mmproj_url)
    assert files.url == ""


def test_an_encoder_s_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"^-mmu x\.gguf: "):
        run(FakeModelFiles(sources(tmp_path, mmproj_url="x.gguf"), {}))


def test_a_registry_s_checksum_is_that_of_the_model_alone(registry: Registry, tmp_path: Path) -> None:
    registry.models["a/b:x"] = CONTENT
    encoder = PlannedFile("https://x/mmproj.gguf", str(tmp_path / "mmproj.gguf"))

    class WithEncoder(FakeModelFiles):
        def plan(self) -> Plan:
            return Plan(url_files=(*super().plan().url_files, encoder))

        def fetch(self) -> None:
            super().fetch()
            Path(encoder.path).write_bytes(b"eyes")

    named = sources(tmp_path, docker_repo=f"{registry.host}/a/b:x", mmproj_url="https://x/mmproj.gguf")
    files = WithEncoder(named, {})
    run(files)
    assert Path(files.path).read_bytes() == CONTENT
