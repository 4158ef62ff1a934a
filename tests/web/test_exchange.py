"""The messages of one request while they wait to be read."""

from __future__ import annotations

import asyncio
import queue

import pytest
from pyggml_server.errors import RequestRefusedError
from pyggml_server.messages import Cancel, Cancelled, Failed, Finished, FromWeb, Submit, Token
from pyggml_server.published import Snapshot
from pyggml_server.web.exchange import Exchange
from pyggml_server.web.mailbox import Mailbox

from tests.web.fakes import FakeTask


class Recorder:
    """An engine that only notes what it is told."""

    def __init__(self) -> None:
        self.inbound: queue.SimpleQueue[FromWeb] = queue.SimpleQueue()

    def submit(self, message: FromWeb) -> None:
        self.inbound.put(message)

    def snapshot(self) -> Snapshot:
        return Snapshot()

    def reset_rate_window(self) -> None:
        """Nothing to reset."""

    def open_door(self) -> None:
        pass

    def try_enter(self) -> bool:
        return True

    def leave(self) -> None:
        pass

    def told(self) -> list[FromWeb]:
        messages = []
        while not self.inbound.empty():
            messages.append(self.inbound.get())
        return messages


def test_tasks_are_submitted_in_order_under_the_exchanges_ids() -> None:
    engine, tasks = Recorder(), [FakeTask(), FakeTask()]
    Exchange(engine, [5, 6]).submit(tasks)
    assert engine.told() == [Submit(5, tasks[0]), Submit(6, tasks[1])]
    Exchange(engine, [7]).submit(tasks[:1], priority=2)
    assert engine.told() == [Submit(7, tasks[0], priority=2)]


def test_taking_returns_everything_that_waits() -> None:
    async def scenario() -> None:
        exchange = Exchange(Recorder(), [1])
        exchange.put(Token(1, b"a"))
        exchange.put(Token(1, b"b"))
        assert await exchange.take() == [Token(1, b"a"), Token(1, b"b")]
        waiting = asyncio.ensure_future(exchange.take())
        await asyncio.sleep(0)
        assert not waiting.done()
        exchange.put(Finished(1, b"c"))
        assert await waiting == [Finished(1, b"c")]

    asyncio.run(scenario())


def test_a_reader_that_is_woken_gets_nothing_and_misses_nothing() -> None:
    async def scenario() -> None:
        exchange = Exchange(Recorder(), [1])
        exchange.wake()  # nobody waits
        waiting = asyncio.ensure_future(exchange.take())
        await asyncio.sleep(0)
        assert not waiting.done()
        exchange.wake()
        exchange.wake()
        assert await waiting == []
        waiting = asyncio.ensure_future(exchange.take())
        await asyncio.sleep(0)
        waiting.cancel()
        exchange.put(Token(1, b"a"))
        assert await exchange.take() == [Token(1, b"a")]

    asyncio.run(scenario())


def test_cancelling_names_open_tasks_once() -> None:
    engine = Recorder()
    exchange = Exchange(engine, [1, 2, 3])
    exchange.put(Finished(2, b""))
    exchange.cancel()
    exchange.cancel()
    assert engine.told() == [Cancel(1), Cancel(3)]


def test_a_reader_that_is_too_slow_gets_an_error_and_its_tasks_are_cancelled_at_once() -> None:
    async def scenario() -> None:
        engine = Recorder()
        exchange = Exchange(engine, [1, 2], max_waiting_bytes=1000)
        for _ in range(100):
            exchange.put(Token(1, b"x" * 100))
        assert engine.told() == [Cancel(1), Cancel(2)]
        (message,) = await exchange.take()
        assert isinstance(message, Failed)
        assert b"reads too slowly" in message.error
        assert message.status == 500

    asyncio.run(scenario())


def test_a_stopping_mailbox_ends_open_exchanges_and_opens_no_more() -> None:
    async def scenario() -> None:
        engine, mailbox = Recorder(), Mailbox()
        exchange = mailbox.open(engine, 2)
        mailbox.stop()
        assert engine.told() == [Cancel(exchange.task_ids[0]), Cancel(exchange.task_ids[1])]
        assert await exchange.take() == [Cancelled(exchange.task_ids[0])]
        with pytest.raises(RequestRefusedError) as refused:
            mailbox.open(engine, 1)
        assert refused.value.status == 503

    asyncio.run(scenario())


def test_ids_are_never_used_twice() -> None:
    async def scenario() -> None:
        mailbox = Mailbox()
        exchanges = [mailbox.open(Recorder(), n_tasks) for n_tasks in (1, 3, 1)]
        for exchange in exchanges:
            mailbox.close(exchange)
        ids = [*mailbox.open(Recorder(), 1).task_ids, *(i for exchange in exchanges for i in exchange.task_ids)]
        assert len(ids) == len(set(ids)) == 6

    asyncio.run(scenario())


def test_delivering_before_and_after_the_event_loop_is_harmless() -> None:
    mailbox = Mailbox()
    mailbox.deliver([Token(1, b"early")])

    async def scenario() -> None:
        mailbox.bind()

    asyncio.run(scenario())
    mailbox.deliver([Token(1, b"late")])
