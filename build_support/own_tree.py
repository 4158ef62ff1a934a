"""PYGGML_LLAMA_DIR: building from the user's own llama.cpp checkout. Reads it; must not change anything in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from build_support.build_error import BuildError

VARIABLE = "PYGGML_LLAMA_DIR"

# What our patches add and the bindings call, by header. A patch that adds an entry point adds it here.
NEEDED = {
    "common/arg.h": ("common_params_add_program_option",),
    "ggml/include/ggml-backend.h": ("ggml_backend_set_search_path",),
    "include/llama.h": (
        "llama_memory_n_cells_used",
        "llama_memory_seq_n_cells",
        "llama_state_seq_copy_init",
        "llama_host_memory_pin",
        "llama_state_seq_copy_buf_use",
        "llama_state_seq_copy_state_size",
        "llama_state_seq_copy_load",
        "llama_state_seq_copy_prefetch_part",
    ),
    "tools/server/server-http.h": ("server_get_program_routes",),
}
PARTS = ("CMakeLists.txt", "common/common.h", "tools/server/server-task.h", "tools/mtmd/mtmd.h")


def own_tree(env: Mapping[str, str], patches: Path) -> Path | None:
    """The checkout that the variable names, or None when it is not set.

    Raises BuildError when that is no llama.cpp tree, or one without the functions of our patches.
    """
    named = env.get(VARIABLE)
    if not named:
        return None
    tree = Path(named).expanduser().resolve()
    for part in PARTS:
        if not (tree / part).is_file():
            raise BuildError(f"{VARIABLE}={named} is not a usable llama.cpp tree: no {part}", "name a full checkout")
    for header, names in NEEDED.items():
        text = (tree / header).read_text(encoding="utf-8")
        missing = [name for name in names if name not in text]
        if missing:
            raise BuildError(
                f"{VARIABLE}={named} has no {missing[0]} in {header}: our patches are not in it",
                f"apply them there (git -C {tree} am $(sed 's|^|{patches}/|' {patches}/series)), or unset {VARIABLE}",
            )
    return tree
