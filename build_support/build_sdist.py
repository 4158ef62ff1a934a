"""The setuptools command for the source package. It brings patched tree and chat page: building it needs no network."""

from __future__ import annotations

from setuptools.command.sdist import sdist

from build_support.layout import of_this_clone
from build_support.native import say
from build_support.packed_tree import pack_tree
from build_support.page import ensure_page, put_page
from build_support.tree import ensure_tree


class SourcePackage(sdist):
    """sdist, with the built chat page, and with vendor/ggml/llama.cpp.tar.xz made for it and taken away again."""

    def run(self) -> None:
        layout = of_this_clone()
        page = ensure_page(layout, ensure_tree(layout, say), say)
        if page is not None:
            put_page(page, layout.root / "server")
        archive = pack_tree(layout)
        try:
            super().run()
        finally:
            archive.unlink()
