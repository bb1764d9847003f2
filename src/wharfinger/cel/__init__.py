"""CEL over managed clusters: the environment with Kubernetes' function libraries, and a cost limit.

`program(expression)` compiles once and caches; a `Program` is asked cluster by cluster.
"""

from wharfinger.cel.environment import BadExpression, Program, ScoreLookup, program

__all__ = ["BadExpression", "Program", "ScoreLookup", "program"]
