"""How copies run that no running chat waits for: jobs in steps, their turns, the memory that they pass through."""
