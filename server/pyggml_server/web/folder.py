"""The files of --path, as llama-server serves them: those of the API have gone before. Event loop thread."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from pyggml_server.web.page import WORKER_PATH, worker_that_ends_itself


class Folder(StaticFiles):
    """A folder's files, and its index.html for itself. Raises RuntimeError when it is missing."""

    def __init__(self, path: str) -> None:
        super().__init__(directory=path, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """As Starlette's, but with llama-server's redirect to a folder within, and its answer for a missing worker."""
        try:
            response = await super().get_response(path, scope)
        except HTTPException as missing:
            if missing.status_code == 404 and path == WORKER_PATH.lstrip("/"):
                return worker_that_ends_itself()
            raise
        if isinstance(response, RedirectResponse):
            # without scheme and host: those that a proxy was asked with are not known here
            return RedirectResponse("/" + scope["path"].strip("/") + "/", 301)
        return response
