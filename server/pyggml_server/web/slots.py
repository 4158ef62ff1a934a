"""The JSON of `/slots`: llama-server's fields of each slot, and those of preemption after them. Reads only."""

from __future__ import annotations

import json

from starlette.responses import Response

from pyggml_server.published import SlotSnapshot, Snapshot
from pyggml_server.web.errors import json_text, refusal
from pyggml_server.web.service import Service


def refuse_without_slots(service: Service) -> Response | None:
    """llama-server's refusal where `--no-slots` switched off what shows the slots, or None."""
    if service.settings.endpoint_slots:
        return None
    return refusal("This server does not support slots endpoint. Start it with `--slots`", "not_supported_error")


def slots_json(snapshot: Snapshot) -> bytes:
    """The response body for all slots, in order of their ids."""
    return json_text([slot_object(slot) for slot in snapshot.slots]).encode()


def slot_object(slot: SlotSnapshot) -> dict[str, object]:
    """One slot. As in llama-server, what belongs to a task is left out until the slot has had its first."""
    shown: dict[str, object] = {
        "id": slot.id,
        "n_ctx": slot.n_ctx,
        "speculative": slot.speculates,
        "is_processing": slot.is_processing,
    }
    if slot.id_task is not None:
        shown |= _task_fields(slot)
    return shown | {
        "state": slot.state,
        "n_cells": slot.n_cells,
        "is_preempted": slot.is_preempted,
        "is_transferring": slot.is_transferring,
        "parked_bytes": slot.parked_bytes,
        "parked_ms": slot.parked_ms,
        "n_preempted": slot.n_preempted,
        "is_held": slot.is_held,
        "is_on_disk": slot.is_on_disk,
        "priority": slot.priority,
    }


def _task_fields(slot: SlotSnapshot) -> dict[str, object]:
    return {
        "id_task": slot.id_task,
        "n_prompt_tokens": slot.n_prompt_tokens,
        "n_prompt_tokens_processed": slot.n_prompt_tokens_processed,
        "n_prompt_tokens_cache": slot.n_prompt_tokens_cache,
        "params": json.loads(slot.params_json),
        "next_token": [
            {
                "has_next_token": slot.has_next_token,
                "has_new_line": slot.has_new_line,
                "n_remain": slot.n_remain,
                "n_decoded": slot.n_decoded,
            }
        ],
    }
