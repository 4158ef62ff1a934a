"""Builds the compiled module; all metadata is in pyproject.toml and all work is in build_support/."""

import sys
from pathlib import Path

# setup.py runs without its own folder on the path when pip isolates the build.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from setuptools import setup

from build_support.build_ext import BuildNative, extension
from build_support.failure import BuildFailure

try:
    setup(ext_modules=[extension()], cmdclass={"build_ext": BuildNative})
except BuildFailure as failure:
    raise SystemExit(f"pyggml: {failure}") from None
