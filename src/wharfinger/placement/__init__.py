"""Choosing clusters: a pure function from a placement, clusters, scores, decisions and the time to a decision."""
