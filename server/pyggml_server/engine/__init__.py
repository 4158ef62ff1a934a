"""The engine: one thread that owns the context. Its parts are plain functions and small classes over `EngineState`.

loop (`Engine`: the thread and its passes), startup, intake (line and slot choice), observe -> planner -> apply, shifts,
batching, step, endings, snapshot; slot, slot_states, pool, transfer, counters, host_memory hold what they work on.
"""
