"""One decode: what goes into it, the call, and what comes out of it."""
