"""The models of one start, from wherever the command line says, to files.

`prepare` on the main thread before there are others, since it changes the environment that native code reads; `run`
on any thread, once.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx2

from pyggml_server.download import checksum, plan_check
from pyggml_server.download.answers import Failure
from pyggml_server.download.docker_registry import Reference, TokenAuth, find_model
from pyggml_server.download.folder_lock import alone_in
from pyggml_server.download.hub import ENDPOINT, Hub
from pyggml_server.download.partial_files import PartialFiles
from pyggml_server.download.ports import DownloadError, ModelFilesPort, Plan, PlannedFile
from pyggml_server.download.relay import Route, TellProgress

log = logging.getLogger(__name__)

LITTLE_SPACE_BYTES = 16 << 20


class Download:
    """One start's models; nothing is asked of anybody where they are all files, or with --offline."""

    def __init__(
        self,
        files: ModelFilesPort,
        environ: MutableMapping[str, str] = os.environ,
        tell_progress: TellProgress | None = None,
    ) -> None:
        self._files = files
        self._sources = files.sources
        self._environ = environ
        self._tell_progress = tell_progress
        self._ending = ExitStack()
        self._hub: Hub | None = None
        self._partial_files = PartialFiles()
        self._oid = ""  # of the file of --docker-repo

    def prepare(self) -> None:
        """Put the forwarder in the hub's place. Main thread, before there are others. Raises DownloadError."""
        if self._sources.is_offline or self._sources.are_files:
            return
        self._hub = Hub(self._environ, self._tell_progress)
        self._ending.callback(self._put_back, self._environ.get(ENDPOINT))
        self._environ[ENDPOINT] = self._hub.address
        self._ending.enter_context(self._hub)

    def run(self) -> None:
        """Fetch what is not there; blocks for as long as that takes. Raises DownloadError."""
        with self._ending:
            try:
                self._find_model()
                plan = self._plan()
                plan_check.check(plan, self._sources, self._latest_failure())
                self._fetch(plan)
            except DownloadError as error:
                text = str(error).strip()
                revealed = text if self._hub is None else self._hub.forwarder.reveal(text)
                raise type(error)(revealed) from None

    def _find_model(self) -> None:
        if self._sources.docker_repo:
            self._find_in_registry()
        elif self._sources.model_url and self._hub is not None:
            self._files.set_model_url(self._redirected("-mu", "url", self._sources.model_url, self._hub))
        if self._sources.mmproj_url and self._hub is not None:
            self._files.set_mmproj_url(self._redirected("-mmu", "mmproj", self._sources.mmproj_url, self._hub))

    def _redirected(self, flag: str, name_of_route: str, text: str, hub: Hub) -> str:
        """An address that leads to this one through the forwarder; the other parts of a model lie next to it."""
        text = text.partition("#")[0]
        url = _parsed(flag, text)
        address, question, query = text.partition("?")
        folder, _, name = address.rpartition("/")
        route = Route(folder + "/", takes_token=hub.is_at(url), partial_files=self._partial_files)
        return hub.forwarder.add(name_of_route, route) + name + question + query

    def _find_in_registry(self) -> None:
        reference = Reference.parse(self._sources.docker_repo)
        path = self._sources.model_path or str(Path(self._sources.cache_folder) / reference.file_name)
        if self._hub is None:
            if not Path(path).exists():
                raise DownloadError(
                    f"--docker-repo {self._sources.docker_repo}: {path} is missing, and --offline allows nothing "
                    "else: start once without --offline"
                )
            self._files.set_model_url("", path)
            return
        auth = TokenAuth(reference.registry)
        try:
            digest = find_model(self._hub.client, reference, auth, self._hub.failures)
        except DownloadError as error:
            if not Path(path).exists():
                raise DownloadError(f"--docker-repo {self._sources.docker_repo}: {error}") from None
            log.warning("%s; using %s, which is already here", error, path)
            self._files.set_model_url("", path)
            return
        self._oid = digest.removeprefix("sha256:")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        base = f"{reference.url}/blobs/"
        route = Route(base, takes_token=False, auth=auth, version=digest, partial_files=self._partial_files)
        self._files.set_model_url(self._hub.forwarder.add("registry", route) + digest, path)

    def _plan(self) -> Plan:
        plan = self._files.plan()
        if self._oid:
            model, *others = plan.url_files
            plan = replace(plan, url_files=(replace(model, oid=self._oid), *others))
        return plan

    def _fetch(self, plan: Plan) -> None:
        with alone_in(Path(file.path).parent for file in self._to_be_asked_for(plan)):
            before = {file.path: _identity(file) for file in plan.files}
            self._partial_files.expect(file.path for file in plan.url_files)
            try:
                self._files.fetch()
            except DownloadError as error:
                raise DownloadError(self._why_not_fetched(plan, error)) from None
            for file in plan.files:
                if _identity(file) != before[file.path]:
                    checksum.check(file)
            self._partial_files.finish()

    def _to_be_asked_for(self, plan: Plan) -> list[PlannedFile]:
        """What may be downloaded: files of the hub once, of addresses when they changed, and offline none."""
        if self._hub is None:
            return []
        return [file for file in plan.files if file in plan.url_files or not Path(file.path).exists()]

    def _why_not_fetched(self, plan: Plan, error: DownloadError) -> str:
        folder = next((Path(file.path).parent for file in plan.files if Path(file.path).parent.is_dir()), None)
        if folder is not None and shutil.disk_usage(folder).free < LITTLE_SPACE_BYTES:
            return f"no space is left in {folder}: make some, or set LLAMA_CACHE to another folder"
        what = " ".join(
            f"{flag} {value}"
            for flag, value in (
                ("-hf", self._sources.hf_repo),
                ("-hfd", self._sources.draft_hf_repo),
                ("--docker-repo", self._sources.docker_repo),
            )
            if value
        )
        failure = self._latest_failure()
        named_by_url = "-mu" if self._sources.model_url else "-mmu"
        return f"{what or named_by_url}: {failure if failure is not None else error}"

    def _latest_failure(self) -> Failure | None:
        return None if self._hub is None else self._hub.failures.latest

    def _put_back(self, endpoint: str | None) -> None:
        if endpoint is None:
            del self._environ[ENDPOINT]
        else:
            self._environ[ENDPOINT] = endpoint


def _parsed(flag: str, text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise DownloadError(f"{flag} {text}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise DownloadError(f"{flag} {text}: expected an address that begins with https://")
    return url


def _identity(file: PlannedFile) -> tuple[int, int, int] | None:
    """Which file it is; another one after it was downloaded again."""
    try:
        found = Path(file.path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
