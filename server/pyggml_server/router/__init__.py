"""Several models in one server: llama-server's router as a process of its own, and pyggml-server for each model."""
