"""A server process with a fake engine that streams one answer, and says which modules were imported for it."""

from __future__ import annotations

import sys

from pyggml_server.messages import Began, Finished

from tests.web.fakes import token
from tests.web.running import running

if __name__ == "__main__":
    with running() as server:
        server.get("/health")  # the client imports what it needs
        before = set(sys.modules)
        opening = server.posting_stream('{"stream":true}', "/completion")
        (task_id,) = server.engine.next_task_ids()
        server.engine.say(Began(task_id), token(task_id, b"1"), Finished(task_id, b"2"))
        assert opening.response().text == "data: 1\n\ndata: 2\n\n"
        print("imported:", *sorted(set(sys.modules) - before))
