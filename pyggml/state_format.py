"""What the bytes of a sequence state mean: rows by position, and conversion to and from llama.cpp's sequence files.

Pure functions over buffers; any thread. Reads the plain KV cache and the window cache, unified or per stream, with V
transposed or not. Recurrent and hybrid states are refused: their rows have no positions.

Two states of one conversation need not be equal byte for byte, since a state holds the sequence id and the order of the
cells. They are equal when `rows_by_position` is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pyggml.errors import InvalidArgumentError, StateError
from pyggml.ffi import lib

MAGIC_BYTES = struct.pack("<I", 0xAF143CD8)
SEQUENCE_HEADER_BYTES = 8  # magic, sequence id
LAST_POSITION = 2**31 - 2  # a range of positions ends before an int32: nothing would reach the one after this
MEDIA_REFUSED = "the file's token list has {} images or sounds: they cannot be restored"
_EXT_BYTES = 12  # more per cell in M-RoPE and n-gram models: the 2-D position and the token
_SERVER_TOKENS_VERSION = 1
_FILE_HEADER = struct.Struct("<III")  # magic, version, token count

Rows = npt.NDArray[np.uint8]
Buffer: TypeAlias = bytes | bytearray | memoryview | Rows
SavedMedia: TypeAlias = tuple[int, bytes]  # the token at which an image or a sound begins, and what is saved of it


@dataclass(frozen=True)
class CacheState:
    """One cache of the state: `positions` int32[n], and per layer `k` and `v` as uint8[n, row bytes], in cell order.

    A layer's `v` is empty where the model keeps keys only.
    """

    positions: npt.NDArray[np.int32]
    k: list[Rows]
    v: list[Rows]


def rows_by_position(state: Buffer) -> list[dict[int, bytes]]:
    """For each layer of each cache, the K row and the V row, joined, under the position of their cell.

    Raises StateError for a format that this module does not read, or a position that occurs twice.
    """
    layers = []
    for cache in parse_state(state):
        positions = [int(position) for position in cache.positions]
        if len(set(positions)) != len(positions):
            raise StateError("a position occurs twice in this state: its rows cannot be told apart by position")
        for k, v in zip(cache.k, cache.v, strict=True):
            layers.append({p: k[i].tobytes() + v[i].tobytes() for i, p in enumerate(positions)})
    return layers


def parse_state(state: Buffer) -> list[CacheState]:
    """The caches of a state in the order in which llama.cpp writes them. Raises StateError."""
    data = byte_view(state)
    if data[:4] != MAGIC_BYTES:
        raise StateError("this is not a sequence state: it does not begin with the magic number")
    for ext_bytes in (0, _EXT_BYTES):
        for has_v in (True, False):
            try:
                return _read_all(_Reader(data, SEQUENCE_HEADER_BYTES), ext_bytes, has_v)
            except (struct.error, ValueError):
                continue
    raise StateError("the state is truncated, or of a kind (recurrent, hybrid) whose rows have no positions")


def byte_view(data: Buffer) -> memoryview:
    """The bytes of a contiguous buffer, in place. Raises InvalidArgumentError where that would need a copy."""
    try:
        # Before Python 3.12 numpy's types do not say that arrays are buffers.
        return memoryview(data).cast("B")  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"this is not a contiguous buffer of bytes: {error}") from error


def first_positions(state: Buffer) -> npt.NDArray[np.int32] | None:
    """The positions of the first cache with cells, as the state says them; None where this is not such a state.

    Reads the part before the rows only.
    """
    data = byte_view(state)
    for stream in range(min(_u32_at(data, SEQUENCE_HEADER_BYTES), 256)):
        offset = SEQUENCE_HEADER_BYTES + 4 * (stream + 2)
        n_cells = _u32_at(data, offset - 4)
        if n_cells == 0:
            continue
        for cell_bytes in (12, 12 + _EXT_BYTES):
            end = offset + n_cells * cell_bytes
            if end > len(data):
                return None
            cells = np.frombuffer(data[offset:end], "<i4").reshape(n_cells, cell_bytes // 4)
            if (cells[:, 1] == 1).all():
                return cells[:, 0].astype(np.int32)
        return None
    return None


def state_to_file(state: Buffer, tokens: npt.NDArray[np.int32]) -> bytes:
    """The bytes of a sequence file with this state and these tokens, as `llama_state_seq_load_file` reads them."""
    return b"".join(state_to_file_parts(state, tokens))


def state_to_file_parts(state: Buffer, tokens: npt.NDArray[np.int32]) -> tuple[bytes, bytes, memoryview]:
    """The same in parts: header, tokens, and the rows, which are a view of the state."""
    data = byte_view(state)
    if bytes(data[:4]) != MAGIC_BYTES:
        raise StateError("this is not a sequence state: it does not begin with the magic number")
    header = _FILE_HEADER.pack(lib.LLAMA_STATE_SEQ_MAGIC, lib.LLAMA_STATE_SEQ_VERSION, len(tokens))
    return header, np.asarray(tokens, "<i4").tobytes(), data[SEQUENCE_HEADER_BYTES:]


def file_to_state(file: Buffer) -> tuple[npt.NDArray[np.int32], Rows]:
    """The tokens and the state in the bytes of a sequence file, the state as `Context.restore_state` reads it.

    In place where `file` is writable: the state is a view of it, and the eight bytes before its rows are overwritten.
    The slot files of llama-server wrap the token list; it is unwrapped. Raises StateError for another kind of file,
    another version, one that ends before its rows, or tokens that stand for images or sound.
    """
    packed, state = split_file(file)
    tokens, media = unwrap_tokens(packed)
    if media:
        raise StateError(MEDIA_REFUSED.format(len(media)))
    return tokens, state


def split_file(file: Buffer) -> tuple[npt.NDArray[np.int32], Rows]:
    """The same with the token list as it stands in the file."""
    data = byte_view(file)
    if len(data) < _FILE_HEADER.size:
        raise StateError("this is not a sequence file: it is shorter than the header")
    magic, version, n_tokens = _FILE_HEADER.unpack_from(data)
    if (magic, version) != (lib.LLAMA_STATE_SEQ_MAGIC, lib.LLAMA_STATE_SEQ_VERSION):
        raise StateError(f"this is not a sequence file of version {lib.LLAMA_STATE_SEQ_VERSION}: {magic:#x}, {version}")
    end = _FILE_HEADER.size + 4 * n_tokens
    if end > len(data):
        raise StateError(f"the sequence file is truncated: its header says {n_tokens} tokens")
    tokens = np.frombuffer(data[_FILE_HEADER.size : end], "<i4").astype(np.int32)
    state = np.frombuffer(data[end - SEQUENCE_HEADER_BYTES :], np.uint8)
    if not state.flags.writeable:
        state = state.copy()
    state[:SEQUENCE_HEADER_BYTES] = np.frombuffer(MAGIC_BYTES + bytes(4), np.uint8)
    return tokens, state


def wrap_tokens(tokens: npt.NDArray[np.int32], media: Sequence[SavedMedia] = ()) -> npt.NDArray[np.int32]:
    """The token list as llama-server writes it into its slot files: -1, its version, how many, the tokens; how many
    images and sounds, at which tokens they begin, and what is saved of each, behind its size in bytes."""
    head = (lib.LLAMA_TOKEN_NULL, _SERVER_TOKENS_VERSION, len(tokens))
    starts = (len(media), *(start for start, _ in media))
    saved = b"".join(struct.pack("<I", len(one)) + one for _, one in media)
    rest = np.frombuffer(saved + bytes(-len(saved) % 4), "<i4")
    return np.concatenate((head, tokens, starts, rest), dtype=np.int32, casting="unsafe")


def unwrap_tokens(packed: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], list[SavedMedia]]:
    """The tokens and the media in a list that `wrap_tokens` wrote, or tokens alone. Raises StateError."""
    if len(packed) == 0 or packed[0] != lib.LLAMA_TOKEN_NULL:
        return packed, []
    n_tokens = int(packed[2]) if len(packed) > 2 else -1
    if packed[1:2].tolist() != [_SERVER_TOKENS_VERSION] or n_tokens < 0 or len(packed) < n_tokens + 4:
        raise StateError("the file's token list is wrapped in a way that is not known here")
    return packed[3 : 3 + n_tokens], _unpack_media(packed[3 + n_tokens :])


def _unpack_media(packed: npt.NDArray[np.int32]) -> list[SavedMedia]:
    data, n_media = packed.tobytes(), int(packed[0])
    offset = 4 * (n_media + 1)
    media = []
    for start in packed[1 : n_media + 1].tolist():
        n_bytes = _u32_at(memoryview(data), offset)
        saved = data[offset + 4 : offset + 4 + n_bytes]
        if offset + 4 + n_bytes > len(data) or not saved:
            break
        media.append((start, saved))
        offset += 4 + n_bytes
    if len(media) != n_media or len(data) - offset >= 4:
        raise StateError("the file's token list is damaged where its images and sounds are")
    return media


class _Reader:
    """A cursor; raises struct.error at the end of the bytes and ValueError for numbers that make no sense."""

    def __init__(self, data: memoryview, offset: int):
        self.data = data
        self.offset = offset

    @property
    def at_end(self) -> bool:
        return self.offset == len(self.data)

    def number(self, kind: str) -> int:
        value: int = struct.unpack_from("<" + kind, self.data, self.offset)[0]
        self.offset += struct.calcsize("<" + kind)
        return value

    def rows(self, n_rows: int, row_bytes: int) -> Rows:
        end = self.offset + n_rows * row_bytes
        if row_bytes < 1 or end > len(self.data):
            raise ValueError(f"{n_rows} rows of {row_bytes} bytes do not fit")
        rows = np.frombuffer(self.data, np.uint8, n_rows * row_bytes, self.offset).reshape(n_rows, row_bytes)
        self.offset = end
        return rows


def _read_all(reader: _Reader, ext_bytes: int, has_v: bool) -> list[CacheState]:
    caches = []
    while not reader.at_end:
        n_streams = reader.number("I")
        if not 1 <= n_streams <= 256:
            raise ValueError(f"{n_streams} streams")
        for _ in range(n_streams):
            n_cells = reader.number("I")
            if n_cells:
                caches.append(_read_cache(reader, n_cells, ext_bytes, has_v))
    return caches


def _read_cache(reader: _Reader, n_cells: int, ext_bytes: int, has_v: bool) -> CacheState:
    cells = reader.rows(n_cells, 12 + ext_bytes)  # position, number of sequences (1), extra, sequence id
    numbers = np.ascontiguousarray(cells).view("<i4")
    if (numbers[:, 1] != 1).any():
        raise ValueError("a cell of a sequence state belongs to one sequence")
    v_transposed, n_layers = reader.number("I"), reader.number("I")
    if v_transposed > 1 or not 1 <= n_layers <= 4096:
        raise ValueError(f"{n_layers} layers")
    k = [_read_rows(reader, n_cells) for _ in range(n_layers)]
    read_v = _read_transposed_rows if v_transposed else _read_rows
    v = [read_v(reader, n_cells) for _ in range(n_layers)] if has_v else [np.empty((n_cells, 0), np.uint8)] * n_layers
    return CacheState(numbers[:, 0].astype(np.int32), k, v)


def _read_rows(reader: _Reader, n_cells: int) -> Rows:
    reader.number("i")  # the element type; rows are compared as bytes
    return reader.rows(n_cells, reader.number("Q"))


def _read_transposed_rows(reader: _Reader, n_cells: int) -> Rows:
    reader.number("i")
    element_bytes, width = reader.number("I"), reader.number("I")
    columns = reader.rows(width * n_cells, element_bytes).reshape(width, n_cells, element_bytes)
    return np.ascontiguousarray(columns.transpose(1, 0, 2)).reshape(n_cells, width * element_bytes)


def _u32_at(data: memoryview, offset: int) -> int:
    part = data[offset : offset + 4]
    return int.from_bytes(part, "little") if len(part) == 4 else 0
