"""The vocabularies that the llama.cpp tree keeps for its own tests, given to models that our scripts write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf

from build_support.layout import of_this_clone

PREFIX = "tokenizer."


@dataclass(frozen=True)
class Vocabulary:
    """One vocabulary file: its tokens in the order of their ids, and the fields that a model's file needs of it."""

    tokens: list[str]
    fields: dict[str, gguf.ReaderField]

    def id_of(self, token: str) -> int:
        """The id of a token as the vocabulary spells it. Raises ValueError where it has none."""
        try:
            return self.tokens.index(token)
        except ValueError:
            raise ValueError(f"{token!r} is no token of this vocabulary: choose one that is") from None

    def add_to(self, writer: gguf.GGUFWriter) -> None:
        """Copy every field of the tokenizer."""
        for name, field in self.fields.items():
            kind = field.types[0]
            inner = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)


def read_vocabulary(name: str) -> Vocabulary:
    """The tree's `models/ggml-vocab-NAME.gguf`. Raises FileNotFoundError where the tree has no such file."""
    return vocabulary_of(of_this_clone().tree / "models" / f"ggml-vocab-{name}.gguf")


def vocabulary_of(path: Path) -> Vocabulary:
    """The vocabulary that a model file holds."""
    fields = gguf.GGUFReader(path).fields
    return Vocabulary(
        fields["tokenizer.ggml.tokens"].contents(),
        {name: field for name, field in fields.items() if name.startswith(PREFIX)},
    )
