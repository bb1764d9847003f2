"""The admission chain of a cluster: what Kubernetes' default plugins do, over a store. Other systems add to it.

The embedded server and the simulation both take their chain from here, so that a write meets the same rules in both.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.admission.limit_ranges import LimitDefaultsReviewer, LimitRangeReviewer
from wharfinger.admission.priority import PriorityClassReviewer, PriorityReviewer
from wharfinger.admission.scheduling_policy.stored import reviewers as scheduling_policy_reviewers
from wharfinger.admission.service_accounts import ServiceAccountReviewer
from wharfinger.admission.toleration_seconds import TolerationSecondsReviewer
from wharfinger.api.configuration import SchedulingPolicySettings
from wharfinger.api.kinds.builtin import LIMIT_RANGES, PRIORITY_CLASSES, SERVICE_ACCOUNTS
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
