"""Replicas of the server behind Ray Serve: `serve run pyggml_server.ray:app model=model.gguf replicas=2`.

Needs the extra `pyggml[ray]`. Nothing else of the server imports this package.
"""

from __future__ import annotations

from typing import Any


def app(given: dict[str, Any]) -> Any:
    """Ray's application from what follows on the command line, or from `args:` of a config file.

    Raises ArgumentError, whose message names what is wrong.
    """
    # here and not above: Ray's proxies need one module of this package, and not all of Ray Serve again
    from pyggml_server.ray.application import application

    return application(given)
