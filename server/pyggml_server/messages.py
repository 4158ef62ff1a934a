"""What crosses between the web side and the engine thread: small frozen messages.

A leaf: imports nothing of the server but what the engine publishes. A payload is bytes in the layout of the native
shim; only `native` reads it. Inbound messages are made on any web thread, outbound ones on the engine thread, and
none is changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pyggml_server.published import Snapshot


class TaskHandle(Protocol):
    """One completion to compute, made by the translation; owned by the engine once it is submitted."""

    def close(self) -> None:
        """Free the native side. Idempotent."""


# -- web -> engine ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Compute this task; every outbound message about it carries `task_id`. Of a lower `priority` it goes first."""

    task_id: int
    task: TaskHandle
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this task as cancelled: its client has disconnected. Unknown and already ended ids are ignored."""

    task_id: int


class SlotVerb(StrEnum):
    """What can be done with the tokens that a slot holds: `?action=` of POST /slots/{id_slot}."""

    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class SlotAction:
    """Save, restore or erase a slot, once it is idle. Ends with Answered, Failed or Cancelled.

    filename  as the client named it, for the answer; `path` is where it is. Both empty for ERASE.
    """

    task_id: int
    verb: SlotVerb
    slot_id: int
    filename: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class HoldSlot:
    """Park what a slot works on until it is called back, or call it back. Ends with Answered, Failed or Cancelled.

    seconds  after which it comes back by itself; 0: not at all.
    """

    task_id: int
    slot_id: int
    is_held: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EndReasoning:
    """End the reasoning of a running completion, at once. Always ends with Answered."""

    task_id: int
    completion_id: str


@dataclass(frozen=True, slots=True)
class Wake:
    """A request waits for the model, which was freed while idle: load it again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every task as cancelled, drain transfers, free the model, end the thread."""


Call = SlotAction | HoldSlot | EndReasoning
FromWeb = Submit | Cancel | Call | Wake
Inbound = FromWeb | Stop


# -- engine -> web ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began:
    """Prompt processing has started: a stream may send its headers. At most once per task, before any Token."""

    task_id: int


@dataclass(frozen=True, slots=True)
class Token:
    """What a step gave a streamed task, or a report on its prompt: whole server-sent events for its client."""

    task_id: int
    events: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a stream tells as an SSE comment (`preempted`, `resumed`); other requests ignore it."""

    task_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The task ended well (payload: formatter input). The last message of its task."""

    task_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that is no completion is done; `answer` is the body of the response, as JSON. Its last message."""

    task_id: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The task ended with an error. `error` is llama-server's JSON error object (code, message, type); last message.

    retry_after_s  when the client may try again, where that is all that is wrong.
    """

    task_id: int
    status: int
    error: bytes
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task ended because it was cancelled or the server stops. The last message of its task."""

    task_id: int


Outbound = Began | Token | Notice | Finished | Answered | Failed | Cancelled
Deliver = Callable[[Sequence[Outbound]], None]


# -- the engine itself -------------------------------------------------------------------------------------------------


class EnginePort(Protocol):
    """What the web side may ask of the engine. Callable from any thread; nothing blocks."""

    def submit(self, message: FromWeb) -> None:
        """Queue a message for the engine's next pass."""

    def snapshot(self) -> Snapshot:
        """The latest published snapshot."""

    def reset_rate_window(self) -> None:
        """Start new averaging windows for the rate gauges, as a scrape of /metrics does."""

    def open_door(self) -> None:
        """The web side has what it needs of a model that was loaded: requests may use it."""

    def try_enter(self) -> bool:
        """Begin to use the model, so that it stays loaded; False while there is none. Who got in must `leave`."""

    def leave(self) -> None:
        """End what `try_enter` began."""
