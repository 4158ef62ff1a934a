"""All that the engine thread owns, how each job ends, and the picture that is published."""
