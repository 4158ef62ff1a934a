"""A slot and its place in the KV pool: its states, its cells, the prompt that it shares, its checkpoints."""
