"""The page at `/pool` in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyggml_server.errors import error_object
from pyggml_server.history import EventKind, History, PoolEvent
from pyggml_server.messages import Answered, Failed, HoldSlot
from pyggml_server.published import Asleep, Counters, SlotSnapshot, Snapshot

from tests.web.browser import PHONE_PX, BrowserPage, browser
from tests.web.fakes import FakeSettings
from tests.web.pool_snapshots import busy_pool, parked
from tests.web.running import Running, running

# every text that stands directly in an element, with the contrast of its colour and the first opaque ground below it
CONTRASTS = """
const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) { return c.slice(0, 3); } } return [255, 255, 255]; };
return [...document.querySelectorAll("body *")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length)
    .map((e) => { const style = getComputedStyle(e);
        const ink = light(numbers(e instanceof SVGElement ? style.fill : style.color).slice(0, 3));
        const under = light(ground(e));
        return [e.textContent, (Math.max(ink, under) + 0.05) / (Math.min(ink, under) + 0.05)]; });
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def open_page(page: BrowserPage, server: Running) -> BrowserPage:
    """The page over a busy pool, drawn."""
    server.engine.published = busy_pool()
    page.open(server.url + "/pool")
    page.until_text("status", "Live")
    return page


def test_each_square_bears_the_number_of_the_slot_that_holds_it(open_page: BrowserPage) -> None:
    # 256 squares of 4 cells
    assert open_page.count("#cells > *") == 256
    assert open_page.texts("#cells .held") == ["0"] * 128
    assert open_page.texts("#cells .kept") == ["1"] * 32


def test_a_prompt_that_waits_for_room_is_not_running_and_keeps_what_its_slot_had(
    page: BrowserPage, server: Running
) -> None:
    waiting = SlotSnapshot(0, 1024, True, id_task=3, n_prompt_tokens=64, state="started", n_cells=64)
    server.engine.published = Snapshot((waiting,), Counters(kv_cells=128, kv_cells_used=64, requests_deferred=2))
    page.open(server.url + "/pool")
    page.until_text("cells-text", "slot 0 keeps 64, 64 free.")
    assert page.texts("#cells .kept") == ["0"] * 64
    assert page.text("totals").split("\n")[2:8] == ["running", "0", "parked", "0", "yet to start", "3"]


def test_the_picture_of_the_pool_is_told_in_words_too(open_page: BrowserPage) -> None:
    words = "640 of 1024 cells in use: slot 0 holds 512, slot 1 keeps 128, 384 free."
    assert open_page.text("cells-text") == words
    assert open_page.script("return document.getElementById('cells').getAttribute('aria-labelledby')") == "cells-text"


def test_parked_slots_stand_next_to_the_pool_with_bytes_and_waiting_time_head_of_the_line_first(
    open_page: BrowserPage,
) -> None:
    first, second = open_page.texts("#parked li")
    tells = r"\nwaiting [\d.]+ (s|min \d+ s), 6\.0 MiB, 300 cells, 2 parks so far"
    assert re.fullmatch("slot 3, next to come back" + tells, first)
    assert second.startswith("slot 2\nwaiting ")
    assert open_page.text("memory-text") == "2 slots parked, 8.0 MiB of 64.0 MiB held"
    assert open_page.script("const m = document.getElementById('memory'); return m.value / m.max") == 0.125


def test_a_chat_that_left_without_its_state_is_said_to_be_computed_again(page: BrowserPage, server: Running) -> None:
    now_s = time.monotonic()
    event = PoolEvent(1, now_s, EventKind.PARK, 2, 12, "no room, to be computed again", 300)
    slots = (parked(2, n_tokens=300, n_bytes=0, parked_at_s=now_s),)
    server.engine.published = replace(busy_pool(), slots=slots, history=History((event,), ()))
    page.open(server.url + "/pool")
    page.until_text("status", "Live")
    assert page.texts("#parked li")[0].endswith(", to be computed again, 300 cells, 2 parks so far")
    assert page.texts("#events li")[0].endswith(" ago: slot 2 parked, 300 cells: no room, to be computed again")
    assert page.count("#lanes path.mark") == 1


def test_a_state_on_its_way_is_said_to_be_copied(page: BrowserPage, server: Running) -> None:
    on_its_way = parked(2, n_tokens=300, n_bytes=4096, parked_at_s=time.monotonic())
    slots = (replace(on_its_way, state="preempting", is_transferring=True),)
    server.engine.published = replace(busy_pool(), slots=slots)
    page.open(server.url + "/pool")
    page.until_text("status", "Live")
    assert page.texts("#parked li")[0].startswith("slot 2, next to come back\nbeing copied, waiting ")


def test_the_time_line_has_a_mark_for_each_event_and_a_hatched_span_for_each_time_parked(
    open_page: BrowserPage,
) -> None:
    assert open_page.texts("#lanes text")[:4] == ["slot 0", "slot 1", "slot 2", "slot 3"]
    assert open_page.count("#lanes path.mark") == 5
    assert open_page.count("#lanes rect.hatched") == 3
    assert open_page.text("lanes-text") == "3 parks and 1 restore in the last minute."


def test_events_are_told_in_words_newest_first(open_page: BrowserPage) -> None:
    events = open_page.texts("#events li")
    assert len(events) == 5
    assert events[0].endswith("ago: slot 2 parked, 100 cells, 2.0 MiB in 1.0 ms: no room for the next step")
    assert events[1].endswith("ago: slot 1 ended, 128 cells: cancelled")
    assert events[4].endswith("ago: slot 3 parked, 300 cells, 6.0 MiB in 2.0 ms: no room for the next step")


def test_each_second_with_gaps_has_a_bar_and_one_with_a_park_is_hatched(open_page: BrowserPage) -> None:
    assert open_page.count("#gaps rect.bar") == 2
    assert open_page.count("#gaps rect.hatched") == 1
    assert open_page.text("gaps-text").startswith("40 gaps in the last minute: mean 48 ms, longest 80 ms, ")


def test_the_table_has_a_row_for_each_slot(open_page: BrowserPage) -> None:
    rows = open_page.texts("#slots tr")
    assert [row.split("\t") for row in rows] == [
        ["0", "generating", "10", "512", "40", "0", "", "Park"],
        ["1", "idle", "", "128", "0", "0", "", ""],
        ["2", "preempted", "12", "0", "0", "2", "500 ms", "Park"],
        ["3", "preempted", "13", "0", "0", "2", "500 ms", "Park"],
    ]


def test_a_button_parks_a_slot_and_another_calls_it_back(open_page: BrowserPage, server: Running) -> None:
    open_page.click("[aria-label='Park slot 0']")
    call = server.engine.next_call()
    assert call == HoldSlot(call.task_id, 0, is_held=True)
    pool = busy_pool()
    held = replace(parked(0, n_tokens=512, n_bytes=4096, parked_at_s=time.monotonic()), is_held=True)
    server.engine.published = replace(pool, slots=(held, *pool.slots[1:]))
    server.engine.say(Answered(call.task_id, b"{}"))
    open_page.until_text("by-hand", "Slot 0 is parked until it is called back.")
    open_page.until_text("slots", "Call back")
    assert open_page.texts("#parked li")[-1].startswith("slot 0, until it is called back\nwaiting ")
    open_page.click("[aria-label='Call back slot 0']")
    call = server.engine.next_call()
    assert call == HoldSlot(call.task_id, 0, is_held=False)
    server.engine.say(Failed(call.task_id, *error_object("slot 0 is idle", "invalid_request_error")))
    open_page.until_text("by-hand", "slot 0 is idle")


def test_a_button_keeps_its_focus_while_the_page_is_drawn_again(open_page: BrowserPage) -> None:
    open_page.script("document.querySelector('#slots button').focus(); draw()")
    assert open_page.script("return document.activeElement.getAttribute('aria-label')") == "Park slot 0"


def test_the_page_follows_the_server(open_page: BrowserPage, server: Running) -> None:
    server.engine.published = replace(busy_pool(), counters=Counters(kv_cells=1024, kv_cells_used=1024))
    open_page.until_text("cells-text", "1024 of 1024 cells in use")
    open_page.until_text("memory-text", "Preemption is off")


def test_a_paused_page_draws_nothing_new_until_it_goes_on(open_page: BrowserPage, server: Running) -> None:
    open_page.click("#pause")
    open_page.until_text("status", "Paused")
    server.engine.published = Snapshot(counters=Counters(kv_cells=64))
    open_page.script("return poll()")
    assert open_page.text("cells-text").startswith("640 of 1024 cells")
    open_page.click("#pause")
    open_page.until_text("cells-text", "0 of 64 cells in use: 64 free.")


def test_what_the_server_says_is_shown_as_text_and_never_as_markup(page: BrowserPage, server: Running) -> None:
    server.engine.published = busy_pool(reason="<b>bold</b>")
    page.open(server.url + "/pool")
    page.until(lambda: page.texts("#events li"))
    assert page.texts("#events li")[0].endswith(": <b>bold</b>")
    assert page.count("#events b") == 0


def test_the_page_asks_nobody_but_its_server_and_the_browser_has_no_complaint(
    open_page: BrowserPage, server: Running
) -> None:
    asked = open_page.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert {url for url in asked if not url.startswith("data:")} == {server.url + "/pool.json"}
    assert [entry for entry in open_page.complaints() if server.url in str(entry["message"])] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_either_scheme(page: BrowserPage, server: Running, scheme: str) -> None:
    server.engine.published = busy_pool()
    page.open(server.url + "/pool", scheme=scheme)
    page.until_text("status", "Live")
    contrasts: list[tuple[str, float]] = page.script(CONTRASTS)
    assert len(contrasts) > 200
    assert [(text, ratio) for text, ratio in contrasts if ratio < 4.5] == []


def test_the_two_schemes_differ(page: BrowserPage, server: Running) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        page.open(server.url + "/pool", scheme=scheme)
        grounds.append(page.script("return getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_on_a_phone_nothing_is_wider_than_the_screen(page: BrowserPage, server: Running) -> None:
    server.engine.published = busy_pool()
    page.open(server.url + "/pool", size_px=PHONE_PX)
    page.until_text("status", "Live")
    assert page.script("return document.documentElement.scrollWidth") == PHONE_PX[0]
    small = (
        "return [...document.querySelectorAll('button')].filter((b) => b.offsetParent && b.offsetHeight < 44).length"
    )
    assert page.script(small) == 0


def test_a_server_with_a_key_is_shown_after_the_key_was_typed(page: BrowserPage) -> None:
    with running(FakeSettings(api_keys=("secret",))) as server:
        server.engine.published = busy_pool()
        page.open(server.url + "/pool")
        page.until_text("status", "Invalid API Key")
        assert page.text("main") == ""
        page.type_into("key", "secret")
        page.click("#key-form button")
        page.until_text("status", "Live")
        assert page.text("key-form") == ""
        assert page.text("cells-text").startswith("640 of 1024 cells")
        page.click("[aria-label='Park slot 0']")  # which needs the key too
        assert server.engine.next_call().task_id == 0


def test_the_page_says_when_the_model_sleeps(page: BrowserPage, server: Running) -> None:
    server.engine.published = replace(busy_pool(), asleep=Asleep(b"{}", b"{}"))
    page.open(server.url + "/pool")
    page.until_text("status", "Live. The model sleeps until the next request.")
    assert page.text("cells-text") == "0 of 1024 cells in use: 1024 free."


def test_the_page_waits_for_the_model_and_says_when_the_server_is_gone(page: BrowserPage) -> None:
    with running(is_loaded=False) as server:
        page.open(server.url + "/pool")
        page.until_text("status", "Loading model")
        server.finish_loading()
        page.until_text("status", "Live")
    page.until_text("status", "The server does not answer. Retrying.")


def test_a_chat_is_parked_from_the_order_of_its_park_to_the_end_of_its_restore_or_its_own(
    open_page: BrowserPage,
) -> None:
    def event(kind: str, age_s: float, took_ms: float = 0, id_slot: int = 1) -> dict[str, object]:
        return {"kind": kind, "age_s": age_s, "took_ms": took_ms, "id_slot": id_slot}

    events = [
        event("restore", 59),  # its park is forgotten
        event("park", 50, took_ms=2000),
        event("park", 45, id_slot=2),
        event("restore", 40, took_ms=1000),
        event("refusal", 35),
        event("park", 30),
        event("refusal", 29, id_slot=2),
        event("end", 20),
        event("park", 10),
    ]
    spans = [{"fromS": 52, "toS": 40}, {"fromS": 30, "toS": 20}]
    find = "return parkedSpans(arguments[0], {id: 1, is_preempted: arguments[1]})"
    assert open_page.script(find, events, True) == [*spans, {"fromS": 10, "toS": 0}]
    assert open_page.script(find, events, False) == spans


@pytest.mark.parametrize(
    ("weights", "squares"),
    [
        ([512, 128, 384], [128, 32, 96]),
        ([0, 1024], [0, 256]),
        ([1, 1, 100000], [1, 1, 254]),
        ([1, 1, 1], [86, 85, 85]),
        ([1] * 300, [1] * 300),
        ([], []),
    ],
)
def test_squares_are_shared_out_by_cells_and_nobody_who_holds_one_is_left_out(
    open_page: BrowserPage, weights: list[int], squares: list[int]
) -> None:
    assert open_page.script("return shareSquares(arguments[0], 256)", weights) == squares


def test_cells_that_no_slot_accounts_for_are_shown_as_such(page: BrowserPage, server: Running) -> None:
    server.engine.published = replace(busy_pool(), counters=Counters(kv_cells=1024, kv_cells_used=768))
    page.open(server.url + "/pool")
    page.until_text("cells-text", "slot 0 holds 512, slot 1 keeps 128, 128 shared, 256 free.")
    assert page.texts("#cells > *").count("?") == 32
