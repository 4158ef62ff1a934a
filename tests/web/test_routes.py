"""Which paths exist, and how those that do not are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.fakes import FakeSettings
from tests.web.form_bodies import TYPE, field, form
from tests.web.running import Posting, Running, one_error, running


def test_an_unknown_path_is_not_found(server: Running) -> None:
    assert one_error(server.get("/no/such/path")) == (404, "not_found_error", "File Not Found")


@pytest.mark.parametrize(("method", "path"), [("GET", "/completion"), ("POST", "/health"), ("DELETE", "/slots")])
def test_a_known_path_with_another_method_is_not_found(server: Running, method: str, path: str) -> None:
    assert one_error(server.request(method, path)) == (404, "not_found_error", "File Not Found")


def test_a_path_with_a_slash_too_many_is_not_redirected(server: Running) -> None:
    assert server.get("/health/").status_code == 404


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/audio/transcriptions"])
def test_a_sound_to_write_down_comes_with_its_form(server: Running, path: str) -> None:
    parts = form(field("prompt", b"Listen"), field("file", b"RIFF\xff", '; filename="a.wav"'))
    posting = Posting(server, path, parts, stream=False, headers={"Content-Type": TYPE})
    (task_id,) = server.engine.next_task_ids()
    server.engine.finish(task_id, b'{"text":"hello"}')
    assert posting.response().json() == {"text": "hello"}
    assert server.engine.translator.sounds == [b"RIFF\xff"]


def test_the_api_prefix_comes_before_every_path() -> None:
    with running(FakeSettings(api_prefix="/llama")) as server:
        assert server.get("/llama/health").status_code == 200
        assert server.get("/llama/v1/models").text == '{"object":"list"}'
        assert server.get("/health").status_code == 404


def test_the_server_calls_itself_llama_cpp_once(server: Running) -> None:
    assert server.get("/health").headers["server"] == "llama.cpp"


def test_without_user_interface_there_is_no_page() -> None:
    with running(FakeSettings(ui=False)) as server:
        assert one_error(server.get("/")) == (404, "not_found_error", "File Not Found")


def test_a_folder_of_static_files_is_served_next_to_the_api(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>mine</p>")
    with running(FakeSettings(public_path=str(tmp_path))) as server:
        assert server.get("/").text == "<p>mine</p>"
        assert server.get("/health").text == '{"status":"ok"}'
        assert one_error(server.get("/missing.js")) == (404, "not_found_error", "File Not Found")


def test_a_folder_in_it_is_sent_for_with_a_path_alone(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "index.html").write_text("within")
    with running(FakeSettings(public_path=str(tmp_path))) as server:
        for asked in ("/a%20b?x=1", "//a%20b"):
            sent = server.get(asked, allow_redirects=False)
            assert (sent.status_code, sent.headers["location"]) == (301, "/a%20b/")
        assert server.get("/a%20b").text == "within"


@pytest.mark.parametrize("settings", [{}, {"ui": False}, {"public_path": "."}, {"api_keys": ("key",)}], ids=str)
def test_a_browser_that_kept_llama_servers_page_is_told_to_let_go_of_it(settings: dict[str, object]) -> None:
    with running(FakeSettings(**settings), is_loaded=False) as server:  # type: ignore[arg-type]
        worker = server.get("/sw.js")
        assert (worker.status_code, worker.headers["cache-control"]) == (200, "no-cache")
        assert worker.headers["content-type"].startswith("application/javascript")
        assert "registration.unregister()" in worker.text


def test_a_folders_own_worker_comes_first(tmp_path: Path) -> None:
    (tmp_path / "sw.js").write_text("// mine")
    with running(FakeSettings(public_path=str(tmp_path))) as server:
        assert server.get("/sw.js").text == "// mine"
