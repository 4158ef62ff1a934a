"""What the planner sees of the slots, and what its plan does to them: parks, restores, recomputing."""
