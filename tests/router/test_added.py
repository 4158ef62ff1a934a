"""What the router gets of ours: flags as llama.cpp's parser has them, pages, and paths that need no key."""

from __future__ import annotations

from typing import Any

from pyggml_server.flags import FLAGS
from pyggml_server.router.added import added


def options() -> dict[str, Any]:
    found: Any = added("", [])["options"]
    return {option["names"][0]: option for option in found}


def test_every_flag_of_ours_is_an_option_of_the_router() -> None:
    assert set(options()) == {flag.names[0] for flag in FLAGS}


def test_a_flag_with_a_value_has_a_hint_and_a_switch_has_a_negation() -> None:
    ram, switch = options()["--preempt-ram"], options()["--preempt-async"]
    assert (ram["hint"], list(ram["negated"]), ram["env"]) == ("MiB", [], "LLAMA_ARG_PREEMPT_RAM")
    assert (switch["hint"], list(switch["negated"])) == (None, ["--no-preempt-async"])
    assert list(switch["names"]) == ["--preempt-async"]


def test_the_chat_page_and_the_pool_need_no_key_behind_their_prefix() -> None:
    assert added("/x", ["/", "/app.js"])["public_paths"] == ["/x/", "/x/app.js", "/x/pool"]


def test_the_pages_come_with_their_policy() -> None:
    pages: Any = added("", [])["pages"]
    for page in pages["/pool"].values():
        assert page["type"].startswith("text/html")
        assert "sha256-" in page["headers"]["content-security-policy"]
        assert page["text"].startswith("<!doctype html>")
    assert pages["/pool"]["without_model"] != pages["/pool"]["with_model"]
