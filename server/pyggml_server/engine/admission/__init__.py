"""The queue of tasks and slot actions: which slot each gets, and what is refused at once."""
