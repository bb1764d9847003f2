"""DynamicResources: refuses pods with resource claims, which are not supported, so that they are never placed wrongly.

For other pods it gives the same messages as the stock plugin.
"""

from __future__ import annotations

from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.views import Pod
from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, error, unresolvable, unschedulable

REFUSAL = unresolvable("not supported by this scheduler: resource claims (spec.resourceClaims)")
NO_CLAIMS = unschedulable("no new claims to deallocate")
SOME_CLAIMS = unschedulable("still not schedulable")
NOTHING_DONE = unschedulable()  # since 1.37
NOT_ASKED = error("not found")


class DynamicResources(Plugin):
    name = "DynamicResources"
    points = frozenset({"preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"})
    position = 145
    weight = 2
    reserves_prepared = True

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return REFUSAL if shape.pod.spec.resource_claims else None

    def post_filter(self, pod: Pod, *, asked: bool) -> Status:
        # Upstream reads the state of its PreFilter here and fails if that never ran.
        if not asked:
            return NOT_ASKED
        if self.tables.kubernetes >= KubernetesVersion.V1_37:
            return NOTHING_DONE
        return SOME_CLAIMS if pod.spec.resource_claims else NO_CLAIMS


plugins = (DynamicResources,)
