"""The HTTP side: llama-server's routes on Starlette and uvicorn, on one event loop thread of its own.

Parses, translates and formats in worker threads, and talks to the engine in the small messages of `messages` only.
Never imports the engine, and never runs native code on the event loop.
"""
