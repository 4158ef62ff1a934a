"""Models of a container registry (--docker-repo): from a name to the address and the hash of its file. Any thread."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from urllib.request import parse_http_list, parse_keqv_list

import httpx2

from pyggml_server.download import answers
from pyggml_server.download.answers import Failures
from pyggml_server.download.ports import DownloadError

DOCKER_HUB = "registry-1.docker.io"
DEFAULT_NAMESPACE = "ai"
DEFAULT_TAG = "latest"
MANIFEST_TYPES = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
NAME = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """`[registry/][namespace/]model[:tag]`, as docker reads it."""

    registry: str
    repository: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Raises DownloadError."""
        folder, slash, last = text.rpartition("/")
        model, _, tag = last.partition(":")
        path = folder + slash + model
        registry, slash, repository = path.partition("/")
        if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
            registry, repository = DOCKER_HUB, path
        if registry == DOCKER_HUB and "/" not in repository:
            repository = f"{DEFAULT_NAMESPACE}/{repository}"
        if not re.fullmatch(rf"{NAME}(?:/{NAME})*", repository):
            raise DownloadError(f"--docker-repo {text}: expected [registry/][namespace/]model[:tag], in small letters")
        return cls(registry, repository, tag or DEFAULT_TAG)

    @property
    def url(self) -> str:
        """Of the repository in its registry, without a slash at its end."""
        return f"https://{self.registry}/v2/{self.repository}"

    @property
    def file_name(self) -> str:
        """What llama.cpp calls the file in its cache; a registry of one's own is part of the name."""
        own = "" if self.registry == DOCKER_HUB else f"{self.registry}/"
        return re.sub(r"[/:]", "_", f"{own}{self.repository}") + f"_{self.tag}.gguf"


class TokenAuth(httpx2.Auth):
    """Registries answer 401 and name the place that gives a token to anybody who may read; so it is fetched there."""

    def __init__(self, registry: str) -> None:
        self._registry = registry
        self._token = ""

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """The request, and again with a new token if its answer asks for one."""
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        kind, _, fields = response.headers.get("www-authenticate", "").partition(" ")
        if response.status_code != 401 or kind.lower() != "bearer" or response.url.netloc.decode() != self._registry:
            return
        challenge = parse_keqv_list(parse_http_list(fields))
        asked: dict[str, str] = {name: value for name, value in challenge.items() if name in ("service", "scope")}
        answer = yield httpx2.Request("GET", httpx2.URL(challenge.get("realm", "")).copy_merge_params(asked))
        answer.read()
        said = answer.json() if answer.status_code == 200 else {}
        if isinstance(said, dict):
            self._token = str(said.get("token") or said.get("access_token") or "")
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


def find_model(client: httpx2.Client, reference: Reference, auth: httpx2.Auth, failures: Failures) -> str:
    """The digest (`sha256:...`) of the model's file. Raises DownloadError."""
    url = f"{reference.url}/manifests/{reference.tag}"
    try:
        response = client.get(url, headers={"Accept": MANIFEST_TYPES}, auth=auth)
        if response.status_code != 200:
            failures.add(answers.of_response(response, response.content))
            raise DownloadError(str(failures.latest))
        for layer in response.json().get("layers", []):
            digest = str(layer.get("digest")).lower()
            if "gguf" in str(layer.get("mediaType")) and SHA256.fullmatch(digest):
                return digest
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise DownloadError(str(answers.of_error(None, url, error))) from None
    except (ValueError, AttributeError):
        raise DownloadError(f"GET {url}: the answer is not a manifest: check the name") from None
    raise DownloadError(f"GET {url}: the manifest lists no GGUF file: choose a model that has one")
