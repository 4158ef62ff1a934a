"""Builds the compiled module; all metadata is in pyproject.toml and all work is in build_support/."""

import sys
from pathlib import Path

# setup.py runs without its own folder on the path when pip isolates the build.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from setuptools import setup

from build_support.build_error import BuildError
from build_support.build_ext import BuildNative, extension
from build_support.build_sdist import SourcePackage

try:
    setup(
        ext_modules=[extension()],
        cmdclass={"build_ext": BuildNative, "sdist": SourcePackage},
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
except BuildError as failure:
    raise SystemExit(f"pyggml: {failure}") from None
