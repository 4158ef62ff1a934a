"""Ray Serve with our application on this machine, for the end-to-end tests.

For the interpreter that has Ray: `-m tests.ray_cluster PORT PIPE NAME=VALUE ...`. It says when it listens, then reads
from the pipe how many replicas there shall be, a number a line, until somebody writes `end`. It does what
`serve run CONFIG` does, and changes the number as a new config does: what else there is stays.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ray
from ray import serve
from ray.serve._private.api import serve_start
from ray.serve.schema import ServeDeploySchema

OBJECT_STORE_BYTES = 80 << 20  # about the least that Ray takes: nothing is kept there
N_CPUS = 8  # what replicas may claim; none of them computes with more than its threads
LOOK_S = 0.2


def main(words: list[str]) -> None:
    port, pipe, *arguments = words
    given = dict(word.split("=", 1) for word in arguments)
    ray.init(address="local", num_cpus=N_CPUS, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES)
    client = serve_start(http_options={"host": "127.0.0.1", "port": int(port)}, proxy_location="HeadOnly")
    client.deploy_apps(_config(given, given["replicas"]))
    while (status := serve.status().applications["default"].status) != "RUNNING":
        if status in ("DEPLOY_FAILED", "UNHEALTHY"):
            sys.exit(f"the application is {status}")
        time.sleep(LOOK_S)
    client.wait_for_proxies_serving(wait_for_applications_running=True)
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    for number in _lines(Path(pipe)):
        client.deploy_apps(_config(given, number))
    serve.shutdown()
    ray.shutdown()


def _config(given: dict[str, str], number: str) -> ServeDeploySchema:
    application = {
        "name": "default",
        "route_prefix": "/",
        "import_path": "pyggml_server.ray:app",
        "args": given,
        "deployments": [{"name": "server", "num_replicas": int(number)}],
    }
    return ServeDeploySchema.model_validate({"applications": [application]})


def _lines(pipe: Path) -> Iterator[str]:
    while True:
        with pipe.open(encoding="utf-8") as lines:  # ends when the writer closes
            for line in lines:
                if line.strip() == "end":
                    return
                yield line.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
