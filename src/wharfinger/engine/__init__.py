"""The scheduling cycle over cluster tables and pod shapes, and preemption. Columnar, incremental and deterministic; no I/O."""

from wharfinger.engine.engine import Engine, UnknownProfile
from wharfinger.engine.outcome import Candidate, Decision, Diagnosis, Explanation, PreemptionResult
from wharfinger.engine.profile import BadArguments, ProfileSpec, default_profile, read_args
from wharfinger.engine.registry import known_plugins

__all__ = [
    "BadArguments",
    "Candidate",
    "Decision",
    "Diagnosis",
    "Engine",
    "Explanation",
    "PreemptionResult",
    "ProfileSpec",
    "UnknownProfile",
    "default_profile",
    "known_plugins",
    "read_args",
]
