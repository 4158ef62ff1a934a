"""What brings the models' files to this machine, where the command line names them by an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyggml_server.native.command_line import CommandLine


def prepare_download(
    command_line: CommandLine, tell_progress: Callable[[str, int, int], None] | None
) -> Callable[[], None] | None:
    """What gets the models' files; None where they are on this machine. Raises DownloadError.

    `tell_progress` gets the address, the bytes that have come, and the bytes of the file (0: unknown).
    """
    from pyggml_server.native.model_files import ModelFiles

    files = ModelFiles(command_line)
    if files.sources.are_files:
        return None
    # here and not above: most starts need no HTTP client
    from pyggml_server.download.fetch import Download

    download = Download(files, tell_progress=tell_progress)
    download.prepare()
    return download.run
