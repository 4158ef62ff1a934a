"""The files of a command line's models: llama.cpp's own choice, cache and downloader. One thread at a time."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from pyggml_server.download.ports import DownloadError, Plan, PlannedFile, Repository, Sources
from pyggml_server.native.border import PyggmlError, call, ffi, lib, take_bytes
from pyggml_server.native.command_line import CommandLine


class ModelFiles:
    """Changes the command line: after `fetch` its models load without a network."""

    def __init__(self, command_line: CommandLine) -> None:
        self._command_line = command_line
        self.sources = Sources(**self._ask(lib.pyggml_args_sources))

    def set_model_url(self, url: str, path: str = "") -> None:
        """Take the model from `url`, "" for nowhere, and keep it in the file `path` if that is given."""
        call(lib.pyggml_args_set_model_url, self._command_line.handle, url.encode(), path.encode())

    def set_mmproj_url(self, url: str) -> None:
        """Take the encoder for images from `url`."""
        call(lib.pyggml_args_set_mmproj_url, self._command_line.handle, url.encode())

    def plan(self) -> Plan:
        """Choose the files, by what the hub or else the cache has. Blocks. Raises DownloadError."""
        found = self._ask(lib.pyggml_args_plan_files)
        return Plan(tuple(map(_repository, found["repositories"])), _files(found["url_files"]))

    def fetch(self) -> None:
        """Download what is not there. Blocks. Raises DownloadError."""
        try:
            call(lib.pyggml_args_fetch_files, self._command_line.handle)
        except PyggmlError as error:
            raise DownloadError(str(error)) from None

    def _ask(self, question: Any) -> Any:
        out = ffi.new("pyggml_bytes *")
        try:
            call(question, self._command_line.handle, out)
        except PyggmlError as error:
            raise DownloadError(str(error)) from None
        return json.loads(take_bytes(out))


def _repository(found: dict[str, Any]) -> Repository:
    known = {field.name: found[field.name] for field in fields(Repository)}
    return Repository(**{**known, "files": _files(found["files"]), "others": tuple(found["others"])})


def _files(found: list[dict[str, str]]) -> tuple[PlannedFile, ...]:
    return tuple(PlannedFile(**file) for file in found)
