"""What llama.cpp's code says of a command line's models, and what it can be asked to do. Frozen values; a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class DownloadError(Exception):
    """A model cannot be had; the message says what was asked of whom, what came back and what to do."""


class PresetRepositoryError(DownloadError):
    """The repository of -hf is a list of models for a router."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the models are to come from. Empty where the command line does not say so."""

    is_offline: bool
    hf_repo: str  # user/model[:quant]
    hf_file: str
    draft_hf_repo: str
    draft_hf_file: str
    docker_repo: str
    model_url: str
    model_path: str
    mmproj_url: str
    cache_folder: str  # of files that come by URL
    hub_cache_folder: str

    @property
    def are_files(self) -> bool:
        """Nothing has to come from anywhere."""
        return not (self.hf_repo or self.draft_hf_repo or self.docker_repo or self.model_url or self.mmproj_url)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file that is there, or will be.

    url         empty where it is known from the cache only.
    final_path  a link to `path` that the hub's cache has next to it; or equal, or empty.
    oid         of the hub: the SHA-256 of the content in 64 digits, or git's hash in 40; or empty.
    """

    url: str
    path: str
    final_path: str = ""
    oid: str = ""


@dataclass(frozen=True, slots=True)
class Repository:
    """What was chosen from a repository of the hub.

    flag           that named it.
    is_preset      it is a list of models for a router.
    cached_preset  that list in the cache, where the hub could not be asked; or empty.
    files          to be loaded; empty where nothing fits.
    others         then: every file that it has.
    """

    flag: str
    name: str
    is_preset: bool = False
    cached_preset: str = ""
    files: tuple[PlannedFile, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """All files that the models need."""

    repositories: tuple[Repository, ...] = ()
    url_files: tuple[PlannedFile, ...] = ()

    @property
    def files(self) -> tuple[PlannedFile, ...]:
        """Of repositories and URLs alike."""
        return (*(file for repository in self.repositories for file in repository.files), *self.url_files)


class ModelFilesPort(Protocol):
    """The models of one command line. One thread at a time; `plan` and `fetch` wait for the network."""

    @property
    def sources(self) -> Sources: ...

    def set_model_url(self, url: str, path: str = "") -> None:
        """Take the model from `url`, and keep it in `path` if that is given."""

    def set_mmproj_url(self, url: str) -> None:
        """Take the encoder for images from `url`."""

    def plan(self) -> Plan:
        """Choose the files. Raises DownloadError."""

    def fetch(self) -> None:
        """Download what is not there, after `plan`. Raises DownloadError."""
