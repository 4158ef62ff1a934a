"""The `with` block of what has to be closed. Knows nothing of what it closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Base of what is closed at the end of its `with` block, however that ends."""

    @abstractmethod
    def close(self) -> None:
        """Gives everything back. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
