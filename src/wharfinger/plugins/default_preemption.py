"""DefaultPreemption: makes room for a pod by evicting pods of lower priority. The engine does the work.

All nodes on which evictions may help are examined. The two arguments, with which upstream examines fewer, are validated
but have no effect.
"""

from __future__ import annotations

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.framework.plugin import Args, Plugin


class DefaultPreemptionArgs(Args, frozen=True):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        found = []
        if not 0 <= percentage <= 100:
            found.append(invalid("minCandidateNodesPercentage", percentage, "not in valid range [0, 100]"))
        if absolute < 0:
            found.append(invalid("minCandidateNodesAbsolute", absolute, "not in valid range [0, inf)"))
        if percentage == 0 and absolute == 0:
            detail = "cannot be zero at the same time as minCandidateNodes"
            found.append(invalid("minCandidateNodesPercentage", percentage, f"{detail}Absolute"))
            found.append(invalid("minCandidateNodesAbsolute", absolute, f"{detail}Percentage"))
        return found


class DefaultPreemption(Plugin):
    name = "DefaultPreemption"
    points = frozenset({"postFilter"})
    position = 150
    preempts = True
    args_type = DefaultPreemptionArgs


plugins = (DefaultPreemption,)
