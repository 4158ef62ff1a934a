"""How the files of the chat page are served: compressed, tagged, cached, and to everybody."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.web.chat_page import INDEX, SUFFIX, ChatPage

from build_support import page_files
from tests.web.fakes import FakeSettings
from tests.web.running import Running, one_error, running

FILES = {
    "index.html": "<!doctype html>the chat page",
    "sw.js": "// worker",
    "manifest.webmanifest": "{}",
    "build.json": '{"version":"1"}',
    "_app/version.json": '{"version":"2"}',
    "_app/immutable/bundle.D_dx.js": "start()",
}
IMMUTABLE = "public, max-age=31536000, immutable"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What npm left."""
    for name, text in FILES.items():
        (tmp_path / "built" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "built" / name).write_text(text)
    return tmp_path / "built"


@pytest.fixture
def chat_page(built: Path, tmp_path: Path) -> ChatPage:
    page_files.pack_page(built, tmp_path / "packed")
    page = ChatPage.in_folder(tmp_path / "packed")
    assert page is not None
    return page


@pytest.fixture
def server(chat_page: ChatPage) -> Iterator[Running]:
    with running(chat_page=chat_page) as started:
        yield started


def test_build_and_server_agree_in_the_names_of_what_is_packed() -> None:
    assert (INDEX, SUFFIX) == (page_files.INDEX, page_files.SUFFIX)


@pytest.mark.parametrize("path", ["/", "/index.html"])
def test_the_page_is_compressed_isolated_and_asked_for_again_each_time(server: Running, path: str) -> None:
    response = server.get(path)
    assert response.text == FILES["index.html"]
    headers = response.headers
    assert (headers["content-encoding"], headers["cache-control"]) == ("gzip", "no-cache")
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("name", "caching", "kind"),
    [
        ("sw.js", "no-cache", "application/javascript"),
        ("manifest.webmanifest", "no-cache", "application/manifest+json"),
        ("build.json", "no-cache", "application/json"),
        ("_app/version.json", "no-cache", "application/json"),
        ("_app/immutable/bundle.D_dx.js", IMMUTABLE, "application/javascript"),
    ],
)
def test_a_file_is_cached_for_ever_only_where_its_name_has_its_hash(
    server: Running, name: str, caching: str, kind: str
) -> None:
    response = server.get(f"/{name}")
    assert response.text == FILES[name]
    assert (response.headers["cache-control"], response.headers["content-type"]) == (caching, kind)
    assert "cross-origin-opener-policy" not in response.headers


@pytest.mark.parametrize("weak", ["", "W/"])
def test_who_has_a_file_is_told_so_and_sent_nothing(server: Running, weak: str) -> None:
    tag = server.get("/").headers["etag"]
    again = server.get("/", headers={"If-None-Match": weak + tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert server.get("/", headers={"If-None-Match": '"another"'}).status_code == 200


def test_a_client_that_reads_nothing_compressed_gets_the_file_as_it_is(server: Running) -> None:
    response = server.get("/", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in response.headers
    assert response.text == FILES["index.html"]


def test_the_page_needs_no_key_with_a_prefix_and_without(chat_page: ChatPage) -> None:
    for prefix in ("", "/llama"):
        with running(FakeSettings(api_keys=("key",), api_prefix=prefix), chat_page=chat_page) as server:
            for name in ("", *FILES):
                assert server.get(f"{prefix}/{name}").status_code == 200
            assert one_error(server.get(prefix + "/props"))[0] == 401


def test_the_page_is_there_while_the_model_loads(chat_page: ChatPage) -> None:
    with running(is_loaded=False, chat_page=chat_page) as server:
        assert server.get("/_app/immutable/bundle.D_dx.js").text == "start()"


def test_no_ui_and_a_folder_of_ones_own_take_its_place(chat_page: ChatPage, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with running(FakeSettings(ui=False), chat_page=chat_page) as server:
        assert one_error(server.get("/"))[0] == 404
        assert "registration.unregister()" in server.get("/sw.js").text
    with running(FakeSettings(public_path=str(tmp_path)), chat_page=chat_page) as server:
        assert server.get("/").text == "mine"
        assert one_error(server.get("/build.json"))[0] == 404


def test_without_a_built_page_there_is_one_with_links(tmp_path: Path) -> None:
    assert ChatPage.in_folder(tmp_path) is None
    with running() as server:
        assert 'href="pool"' in server.get("/").text


def test_equal_files_have_equal_tags_whenever_they_were_built(built: Path, tmp_path: Path) -> None:
    for name in ("packed", "again"):
        page_files.pack_page(built, tmp_path / name)
    for name in (INDEX, "index.html" + SUFFIX):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "packed" / name).read_bytes()
    assert gzip.decompress((tmp_path / "again" / "sw.js.gz").read_bytes()) == b"// worker"
