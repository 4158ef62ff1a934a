"""`python -m pyggml_server`: the same program as `pyggml-server`."""

from __future__ import annotations

import sys

from pyggml_server.main import main

if __name__ == "__main__":
    sys.exit(main())
