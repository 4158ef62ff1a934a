"""What is counted and remembered for `/metrics` and `/pool`."""
