"""The page at `/` if the chat page was not built: links to the other pages and numbers.

Also the worker that replaces the chat page's service worker with --no-ui and --path: a browser that used the chat page
at this address shows its cached copy until that service worker is gone.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

PAGE = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>pyggml-server</title>
<h1>pyggml-server</h1>
<p>The API works. The chat page was not built; the set-up said why. Run <code>python -m build_support page</code> in the
source, or serve your own page with <code>--path FOLDER</code>.</p>
<ul>
<li><a href="pool">pool</a>: who holds the KV pool now, live</li>
<li><a href="health">health</a></li>
<li><a href="v1/models">models</a></li>
<li><a href="props">props</a></li>
<li><a href="slots">slots</a></li>
<li><a href="metrics">metrics</a>, with <code>--metrics</code></li>
</ul>
</html>
"""


async def page(_: Request) -> Response:
    """The page itself, also while the model loads."""
    return Response(PAGE, headers={"content-type": "text/html; charset=utf-8", "cache-control": "no-cache"})


WORKER_PATH = "/sw.js"
WORKER_THAT_ENDS_ITSELF = b"""// Takes the place of the chat page's service worker, and ends itself.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(end()));

async function end() {
  for (const name of await caches.keys()) await caches.delete(name);
  await registration.unregister();
  for (const page of await clients.matchAll({ type: "window" })) page.navigate(page.url);
}
"""


def worker_that_ends_itself() -> Response:
    """What a browser's update check finds in place of that service worker."""
    headers = {"content-type": "application/javascript", "cache-control": "no-cache"}
    return Response(WORKER_THAT_ENDS_ITSELF, headers=headers)


async def worker(_: Request) -> Response:
    """GET /sw.js where no folder has one."""
    return worker_that_ends_itself()
