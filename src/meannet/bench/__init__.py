"""`meannet bench`: speed beside peers, how cost grows, a busy neighbour, and what a run costs beside its updates."""
