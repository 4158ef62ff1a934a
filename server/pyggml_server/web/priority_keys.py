"""Which API keys have a class of their own: the file of `--priority-keys`. Read once, at start, on the main thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyggml_server.errors import UsageError
from pyggml_server.web.priority import MOST


def read_key_classes(path: str | None, api_keys: Sequence[str] | None) -> Mapping[bytes, int]:
    """Class by key, from lines of a number and a key; none without a file. `api_keys` are those that the server asks
    for, or None if somebody before it does.

    Raises UsageError, which names the line and never the key.
    """
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"error: --priority-keys: {path} cannot be read ({why}): name a file of lines like `0 key`"
        ) from error
    classes: dict[bytes, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        text, _, key = line.strip().partition(" ")
        try:
            priority = int(text)
        except ValueError:
            raise _refused(path, number, "give a whole number, a space and a key") from None
        if abs(priority) > MOST:
            raise _refused(path, number, f"{priority} is not between -{MOST} and {MOST}")
        if api_keys is not None and key.strip() not in api_keys:
            raise _refused(path, number, "this key is not in --api-key or --api-key-file: add it there")
        classes[key.strip().encode()] = priority
    return classes


def _refused(path: str, number: int, why: str) -> UsageError:
    return UsageError(f"error: --priority-keys: {path}, line {number}: {why}")
