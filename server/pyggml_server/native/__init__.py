"""The one door from the server to llama.cpp: command line, loading, request translation, the call per step.

The only package of the server that imports `pyggml`. Its modules are imported one by one where they are needed:
`command_line`, `translator` and `request` serve the web side, `runtime` the engine.
"""
