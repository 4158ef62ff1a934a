"""pyggml_server: a drop-in replacement for llama-server that parks chats when the KV pool is full.

This module owns nothing and imports nothing, so that the pure parts (`pyggml_server.planner`) can be imported
where the compiled module does not exist.
"""
