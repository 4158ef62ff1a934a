"""How copies run that no running chat waits for: jobs in steps, their turns, the pinned memory that they pass."""
