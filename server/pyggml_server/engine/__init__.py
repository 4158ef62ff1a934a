"""The engine: one thread that owns the context. `loop` has the thread, `passes` one pass, each folder is a room.

A room's `__init__.py` says what lives in it; which room may import which is a contract in pyproject.toml.
"""
