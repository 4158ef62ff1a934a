"""The page at `/`: links to what can be looked at; --path serves another one from a folder.

And the end of the page that was here before: a browser that used llama-server's own user interface at this address has
kept it with a service worker, and shows it instead of ours until the worker is gone.
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
<p>The API is here. There is no page to chat on; <code>--path FOLDER</code> serves one from a folder.</p>
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
FAREWELL = b"""// Takes the place of the service worker of llama-server's user interface, and ends itself.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(leave()));

async function leave() {
  for (const name of await caches.keys()) await caches.delete(name);
  await registration.unregister();
  for (const page of await clients.matchAll({ type: "window" })) page.navigate(page.url);
}
"""


def farewell() -> Response:
    """What a browser's update check finds in place of that service worker."""
    return Response(FAREWELL, headers={"content-type": "application/javascript", "cache-control": "no-cache"})


async def worker(_: Request) -> Response:
    """GET /sw.js where no folder has one."""
    return farewell()
