"""The API key of a request, and whether it is one of the server's. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

_BEARER = b"Bearer "


def key_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The key that the request carries, right or wrong; empty if none."""
    return (headers.get(b"authorization") or headers.get(b"x-api-key") or b"").removeprefix(_BEARER)


def has_valid_key(api_keys: Sequence[str], headers: Mapping[bytes, bytes]) -> bool:
    """Whether the request carries one of the keys, as `Authorization` or `X-Api-Key`; true if no key is set."""
    if not api_keys:
        return True
    given = key_of(headers)
    return any(hmac.compare_digest(given, key.encode()) for key in api_keys)
