"""Whether two sides agree, and whether one side agrees with its own past."""
