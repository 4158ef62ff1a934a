"""Why a file cannot be loaded as a model, in words that say what to do. Reads its first bytes; any thread."""

from __future__ import annotations

from pathlib import Path

GGUF = b"GGUF"
N_BYTES_READ = 64
FORMER_MAGICS = (b"ggml", b"ggmf", b"ggjt", b"lmgg", b"fmgg", b"tjgg")
# what a file begins with, what it is then, and what to do about it
KNOWN_BEGINNINGS = (
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself: run `git lfs pull` where it is from"),
    (b"<", "a page, not a model: download the file itself, or use -hf user/model"),
    (b"PK", "a PyTorch archive: convert it with llama.cpp's convert_hf_to_gguf.py"),
    (b"\x80", "a Python pickle: convert it with llama.cpp's convert_hf_to_gguf.py"),
)
NO_GGUF = "no GGUF file: convert its model with llama.cpp's convert_hf_to_gguf.py, or name a file that ends in .gguf"


def why_it_does_not_load(path: Path, said: str = "") -> str:
    """One clause without a full stop.

    said  llama.cpp's own words on it, if it had any.
    """
    if path.is_dir():
        return _of_folder(path)
    try:
        with path.open("rb") as file:
            beginning = file.read(N_BYTES_READ)
    except FileNotFoundError:
        return "there is no such file: give the path of a GGUF file, or -hf user/model to download one"
    except OSError as error:
        return f"it cannot be read ({error.strerror}): see to its owner and mode"
    if beginning.startswith(GGUF):
        return (
            f"{said or 'a line above says what is wrong'} (it begins as a GGUF file should: download it again if it is "
            "cut short, or take a newer pyggml if its architecture is unknown)"
        )
    return "it is " + _kind_of(beginning)


def _of_folder(path: Path) -> str:
    models = sorted(inside.name for inside in path.glob("*.gguf"))
    shown = ", ".join(models[:5]) + (", ..." if len(models) > 5 else "")
    return f"it is a folder: name a file in it ({shown})" if models else "it is a folder, without any GGUF file in it"


def _kind_of(beginning: bytes) -> str:
    if not beginning:
        return "empty: download it again"
    if beginning[:4] in FORMER_MAGICS:
        return "of a format that came before GGUF: convert its model again"
    if beginning[8:10] == b'{"':
        return "a safetensors file: convert its model with llama.cpp's convert_hf_to_gguf.py"
    return next((kind for known, kind in KNOWN_BEGINNINGS if beginning.startswith(known)), NO_GGUF)
