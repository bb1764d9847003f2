"""The admission chain of a cluster: what Kubernetes' default plugins do, over a store. Other systems add to it.

The embedded server and the simulation both take their chain from here, so that a write meets the same rules in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from wharfinger.admission.limit_ranges import LimitDefaultsReviewer, LimitRangeReviewer
from wharfinger.admission.placement import placement_reviewers
from wharfinger.admission.priority import PriorityClassReviewer, PriorityReviewer
from wharfinger.admission.scheduling_policy.stored import StoredRbac
from wharfinger.admission.scheduling_policy.stored import reviewers as scheduling_policy_reviewers
from wharfinger.admission.service_accounts import ServiceAccountReviewer
from wharfinger.admission.toleration_seconds import TolerationSecondsReviewer
from wharfinger.api.configuration import PlacementSettings, SchedulingPolicySettings
from wharfinger.api.kinds.builtin import LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, SERVICE_ACCOUNTS
from wharfinger.api.registry import Document
from wharfinger.api.views.core import LimitRange
from wharfinger.api.views.workloads import PriorityClass
from wharfinger.store.chain import Chain
from wharfinger.store.store import Store


def extend_chain(
    chain: Chain,
    store: Store,
    *,
    require_service_accounts: bool = True,
    scheduling_policy: SchedulingPolicySettings | None = None,
    placement: PlacementSettings | None = None,
    now: Callable[[], float] = time.time,
) -> None:
    """Adds the default reviewers to a store's chain, in upstream's order of plugins, and scheduling policies around them.

    Policies inject before priority classes are resolved, and look last at what came of it.
    """
    injecting, checking = scheduling_policy_reviewers(store, scheduling_policy)

    def ranges(namespace: str) -> Iterable[LimitRange]:
        return (item.view(LimitRange) for item in store.scan(LIMIT_RANGES, namespace))

    def priority_class(name: str) -> PriorityClass | None:
        found = store.peek(PRIORITY_CLASSES, name)
        return None if found is None else found.view(PriorityClass)

    def priority_classes() -> Iterable[PriorityClass]:
        return (item.view(PriorityClass) for item in store.scan(PRIORITY_CLASSES))

    def account(namespace: str, name: str) -> Document | None:
        found = store.peek(SERVICE_ACCOUNTS, name, namespace)
        return None if found is None else found.document()

    chain.mutating += [
        injecting,
        LimitDefaultsReviewer(ranges),
        ServiceAccountReviewer(account if require_service_accounts else None),
        PriorityReviewer(priority_class, priority_classes),
        TolerationSecondsReviewer(),
    ]
    chain.validating += [LimitRangeReviewer(ranges), PriorityClassReviewer(priority_classes), checking]
    _add_placement(chain, store, placement or PlacementSettings(), now)


def _add_placement(chain: Chain, store: Store, settings: PlacementSettings, now: Callable[[], float]) -> None:
    rbac = StoredRbac(store)

    def terminating(name: str) -> bool:
        found = store.peek(NAMESPACES, name)
        return found is not None and bool(found.document()["metadata"].get("deletionTimestamp"))

    mutating, validating = placement_reviewers(
        now,
        lambda question: rbac.index().allowed(question).allowed,
        terminating,
        default_set=settings.default_cluster_set,
    )
    chain.mutating += mutating
    chain.validating += validating
