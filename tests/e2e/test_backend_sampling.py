"""Sampling on the device (--backend-sampling): a request's own seed and parameters hold there too."""

from __future__ import annotations

from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

BODY = {"prompt": "The countries of Europe are:", "n_predict": 12, "seed": 4242, "temperature": 0.8}


def text_of(server: ServerProcess, **more: object) -> str:
    return str(server.post("/completion", {**BODY, **more}).json()["content"])


def test_a_seeded_request_gives_the_same_text_again(start_ours: StartServer) -> None:
    with start_ours("--backend-sampling") as server:
        texts = {text_of(server, backend_sampling=on_device) for on_device in (True, False, True, False)}
        assert len(texts) == 1
        assert text_of(server, seed=1) not in texts


def test_a_slot_that_sampled_on_the_device_serves_others_afterwards(start_ours: StartServer) -> None:
    with start_ours("--backend-sampling") as server:
        for on_device in (True, False):
            only_a = {"grammar": 'root ::= "a"{3,3}', "backend_sampling": on_device}
            assert text_of(server, id_slot=0, **only_a) == "aaa"
        alone = text_of(server, id_slot=1, temperature=0)
        assert text_of(server, id_slot=0, temperature=0) == alone
