"""ggml's backends: what is compiled in, what lies next to the libraries, and plug-ins of other packages.

Loaded once per process, before the first model. Any thread may ask for it. The current folder is never searched.
"""

from __future__ import annotations

import logging
import os
import threading

from pyggml.errors import PyggmlError
from pyggml.ffi import call, lib

#: A package adds a backend with an entry point of this group: a function without arguments that returns the path of a
#: ggml library, for example `cuda = "pyggml_cuda:library_path"`.
PLUGINS = "pyggml.backends"

_LOGGER = logging.getLogger("pyggml.ggml")
_lock = threading.Lock()
_is_done = False


def load_backends() -> None:
    """Loads every backend; does nothing the second time. Blocks while libraries are loaded.

    A plug-in that cannot be loaded is reported with a warning, and the others still load. `GGML_BACKEND_PATH` names one
    more library.
    """
    from importlib.metadata import entry_points  # slow to import, and needed for the first model only

    global _is_done
    with _lock:
        if not _is_done:
            call(lib.pyggml_backends_load)
            for plugin in entry_points(group=PLUGINS):
                try:
                    call(lib.pyggml_backend_load_file, os.fsencode(plugin.load()()))
                except (PyggmlError, ImportError, AttributeError, OSError) as error:
                    _LOGGER.warning("the backend plug-in %r is not used: %s", plugin.value, error)
            _is_done = True
