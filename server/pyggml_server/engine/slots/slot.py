"""One slot: the sequence it owns in the pool, the task it works on, the prompt it shares. Engine thread only.

Holds facts, takes no decision: `slot_states` owns which state may follow which, `apply` and `endings` make the moves.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyggml_server.engine.background.jobs import BackgroundJob
from pyggml_server.engine.background.prompt_index import Entry
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.images import Images, image_at, n_positions
from pyggml_server.engine.slots.slot_states import SlotPhase, SlotState
from pyggml_server.engine.slots.state_on_disk import StateOnDisk
from pyggml_server.engine.transfers.transfer import Transfer
from pyggml_server.native.adapters import NO_ADAPTERS, Adapters
from pyggml_server.published import SlotSnapshot

if TYPE_CHECKING:
    from pyggml_server.native.task import Task


@dataclass(slots=True, eq=False)
class Job:
    """A task from the moment it gets its slot until it ends. Times in the engine's clock (seconds)."""

    task_id: int
    task: Task
    order: int
    prompt: list[int]
    priority: int = 0
    arrived_at_s: float = 0.0
    images: Images = ()
    encoding: Future[None] | None = None  # of the next image, once it was asked for
    n_kept: int = 0  # prefix of the slot's tokens that this request reuses
    n_prompt_processed: int = 0
    n_decoded: int = 0
    sampled: int = -1  # the token to decode next
    has_next_token: bool = True
    last_token_at_s: float | None = None
    n_tokens_since_park: int = 0
    n_parks: int = 0
    parked_s: float = 0.0
    children: list[Job] = field(default_factory=list)  # of its request (n > 1), in line with it
    n_children_gone: int = 0  # that were cancelled there
    has_siblings: bool = False  # it shares, or shared, its prompt with other answers of its request
    refill: list[int] | None = None  # tokens that are computed again before it continues (`recompute.py`)
    needs_refill: bool = False  # it was dropped without its state
    parked_for_request: int | None = None
    has_run_since_restore: bool = True
    was_on_disk: bool = False  # since its last park its state was in a file, and came back
    wanted_file: Entry | None = None  # of the prompt cache; None: it was not looked for yet
    is_held: bool = False  # it stays out of the pool until it is called back
    held_until_s: float | None = None
    is_park_refusal_known: bool = False
    is_rotation_refusal_known: bool = False

    @property
    def to_process(self) -> list[int]:
        """The tokens that its slot holds once it is no longer processing a prompt."""
        return self.prompt if self.refill is None else self.refill

    @property
    def n_prompt(self) -> int:
        return len(self.prompt)


@dataclass(slots=True, eq=False)
class Slot:
    """A sequence id of the context and what is done with it.

    tokens          what the sequence holds, one entry per cell: in the pool, or in the parked state.
    images          those among `tokens`; what begins beyond their end was cut away.
    shared          cells at its beginning that other slots have too, or None.
    children        slots in WAIT_OTHER, for its prompt.
    copy            the park or restore that has not completed yet: set while PREEMPTING or RESTORING, and after that
                    until the scatter of a slot that runs again has completed.
    on_disk         PREEMPTED: its state is in a file, or on its way there or back.
    background_job  IDLE: what needs its cells, or will: a save to the prompt cache, a load from there.
    reserved_for    IDLE: the job in line whose prompt it is getting from the prompt cache.
    """

    id: int
    n_ctx: int
    transfer: Transfer
    speculates: bool = False
    state: SlotState = field(init=False)
    tokens: list[int] = field(default_factory=list)
    images: Images = ()
    adapters: Adapters = NO_ADAPTERS  # what the tokens were decoded with
    job: Job | None = None
    copy: CopyInFlight | None = None
    on_disk: StateOnDisk | None = None
    background_job: BackgroundJob | None = None
    reserved_for: Job | None = None
    shared: SharedPrompt | None = None
    children: list[Slot] = field(default_factory=list)
    last_seen: SlotSnapshot | None = None  # how the last job looked when it ended, as `/slots` shows it
    last_used_s: float = 0.0
    last_decoded_pass: int = 0
    started_at_s: float = 0.0
    resident_since_s: float = 0.0
    parked_at_s: float = 0.0
    park_order: int = 0
    has_pending_shift: bool = False

    def __post_init__(self) -> None:
        self.state = SlotState(self.id)

    @property
    def phase(self) -> SlotPhase:
        return self.state.phase

    @property
    def has_images(self) -> bool:
        """Whether any of `tokens` is of an image."""
        return bool(self.images) and self.images[0].start < len(self.tokens)

    def saved_images(self) -> list[tuple[int, bytes]]:
        """What a file has of its images, each behind the token at which it begins."""
        return [(run.start, run.name.saved) for run in self.images if run.start < len(self.tokens)]

    def n_positions(self, n_tokens: int) -> int:
        """Positions that its first `n_tokens` tokens take."""
        return n_positions(self.images, n_tokens)

    def hold(self, tokens: list[int], images: Images = ()) -> None:
        """Its cells are those of these tokens now, with these images among them."""
        self.tokens[:] = tokens
        self.images = images

    @property
    def n_prompt_done(self) -> int:
        """Of a slot that has prompt left: the tokens before its next step."""
        return self.active_job.n_kept if self.phase is SlotPhase.STARTED else len(self.tokens)

    @property
    def image_step(self) -> int | None:
        """Of a slot that has prompt left: which of the job's images its next step is, or None for text."""
        return image_at(self.active_job.images, self.n_prompt_done)

    @property
    def waits_for_encoder(self) -> bool:
        """Whether its next step is an image that is still being encoded."""
        job = self.job
        if job is None or job.encoding is None or job.encoding.done() or not self.has_prompt_left:
            return False
        return self.image_step is not None

    @property
    def has_prompt_left(self) -> bool:
        return self.phase in (SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT)

    @property
    def is_idle(self) -> bool:
        return self.state.phase is SlotPhase.IDLE

    def is_free_for(self, job: Job | None) -> bool:
        """Whether it is idle and can be had: no other job has it reserved, and nothing copies what it holds."""
        is_reserved = self.reserved_for is not None and self.reserved_for is not job
        return self.is_idle and not is_reserved and (self.background_job is None or self.background_job.can_be_dropped)

    def wait_for_background_job(self) -> None:
        """Block until no background job needs what the slot holds."""
        while self.background_job is not None and not self.background_job.is_done():
            self.background_job.wait_for_step()
        self.background_job = None

    def drop_file(self) -> None:
        """Give the file with its state up, if there is one, and with it a state on its way there or back. Never blocks
        for the disk."""
        if self.on_disk is not None:
            self.on_disk.give_up(self.transfer)
            self.on_disk = None

    def drop_background_job(self) -> None:
        """Take it from a job that can be dropped."""
        if self.background_job is not None:
            self.background_job.close()
            self.background_job = None

    @property
    def holds_cells(self) -> bool:
        """Whether `tokens` are in the pool: not from when a park gives its cells back until a restore takes some."""
        if self.phase is SlotPhase.PREEMPTING and self.copy is not None:
            return self.copy.frees_on_completion
        return self.phase is not SlotPhase.PREEMPTED and not self.is_promised_cells

    @property
    def is_promised_cells(self) -> bool:
        """Whether its restore was ordered and its state is not yet where it is put into cells from."""
        return self.copy is not None and self.copy.step in (CopyStep.QUEUED, CopyStep.PREFETCH)

    @property
    def counts_cells(self) -> bool:
        """Whether cells for `tokens` are taken: the slot holds them, or they are promised to it."""
        return self.holds_cells or self.is_promised_cells

    @property
    def active_job(self) -> Job:
        """The job of a slot that is not idle. Raises RuntimeError on an idle one."""
        if self.job is None:
            raise RuntimeError(f"slot {self.id} is {self.state.phase.name} and has no job")
        return self.job


@dataclass(slots=True, eq=False)
class SharedPrompt:
    """The first `n_cells` tokens of every holder.

    holders         slots whose sequences have these cells, or will have them again; an idle slot's too, which has the
                    prompt of an answer that ended. At least two.
    is_cut_in_park  the memory can keep what follows the prompt without the prompt. If not, each is parked by itself,
                    with a prompt of its own from then on.
    keeper          while they are parked: whose state has the prompt.
    """

    n_cells: int
    holders: list[Slot]
    is_cut_in_park: bool
    keeper: Slot | None = field(default=None)

    def answering(self) -> list[Slot]:
        """Those that still work on the request, the first one first."""
        return [slot for slot in self.holders if slot.job is not None and slot.job.has_siblings]
