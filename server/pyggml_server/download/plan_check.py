"""Whether a plan has every file that its models need, or else a sentence that says why not. Looks at files only."""

from __future__ import annotations

from pathlib import Path

from pyggml_server.download.answers import Failure
from pyggml_server.download.ports import DownloadError, Plan, PresetRepositoryError, Repository, Sources

N_SHOWN_FILES = 20


def check(plan: Plan, sources: Sources, failure: Failure | None) -> None:
    """`failure` is the latest request that failed, if one did. Raises DownloadError."""
    for repository in plan.repositories:
        if repository.cached_preset:
            raise DownloadError(
                f"{repository.flag} {repository.name} is a list of models, and the hub cannot be reached: "
                f"start with --models-preset {repository.cached_preset} instead"
            )
        if repository.is_preset and repository.flag == "-hf":
            raise PresetRepositoryError(f"{repository.flag} {repository.name} has a preset.ini: it is for a router")
        if not repository.files:
            raise DownloadError(f"{repository.flag} {repository.name}: {_why_nothing(repository, sources, failure)}")
    for file in plan.files:
        if (sources.is_offline or not file.url) and not Path(file.path).exists():
            allowed = ", and --offline forbids downloading it" if sources.is_offline else ""
            raise DownloadError(f"{file.path} is missing{allowed}: start once with a network and without --offline")


def _why_nothing(repository: Repository, sources: Sources, failure: Failure | None) -> str:
    if not repository.others:
        if sources.is_offline:
            return (
                f"nothing of it is in the cache ({sources.hub_cache_folder}), and --offline forbids downloading it: "
                "start once without --offline"
            )
        return str(failure) if failure is not None else "not the name of a repository: expected user/model[:quant]"
    has = [name for name in repository.others if name.endswith(".gguf")]
    where = "the cache has no" if sources.is_offline else "the repository has no"
    if not has:
        return f"{where} GGUF file of it: look for one with -GGUF at the end of its name"
    shown = ", ".join(has[:N_SHOWN_FILES]) + (", ..." if len(has) > N_SHOWN_FILES else "")
    file = sources.hf_file if repository.flag == "-hf" else sources.draft_hf_file
    quant = repository.name.partition(":")[2]
    wanted = f"file {file}" if file else f"model file of quant {quant}" if quant else "model file"
    return f"{where} {wanted}: it has {shown}"
