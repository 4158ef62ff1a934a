"""The pin: which upstream source the tree is made of. Reads vendor/ggml/pin.json; must not fetch anything."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from build_support.build_error import BuildError


@dataclass(frozen=True)
class Pin:
    """One source distribution, by name, version and hash, and the upstream commit inside it."""

    package: str
    version: str
    sha256: str
    upstream_commit: str
    upstream_build_number: int
    ggml_version: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def read_pin(path: Path) -> Pin:
    """Raises BuildError when the file is missing, is no JSON, or has other fields than Pin."""
    try:
        return Pin(**json.loads(path.read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError) as error:
        raise BuildError(f"{path} is not a usable pin: {error}", f"git checkout {path.name} in its folder") from error
