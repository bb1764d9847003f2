"""The admission chain of a cluster: what Kubernetes' default plugins do, and what our systems check, over a store.

The embedded server and the simulation both take their chain from here, so that a write meets the same rules in both.
"""

from __future__ import annotations

from wharfinger.admission.limit_ranges import LimitDefaultsReviewer, LimitRangeReviewer
from wharfinger.admission.priority import PriorityClassReviewer, PriorityReviewer
from wharfinger.admission.quota import QuotaReviewer
from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.reads import Derived, Views
from wharfinger.admission.runtime_class import RuntimeClassReviewer
from wharfinger.admission.service_accounts import ServiceAccountReviewer
from wharfinger.admission.service_addresses import ServiceAddressReviewer
from wharfinger.admission.storage_protection import StorageProtectionReviewer
from wharfinger.admission.toleration_seconds import TolerationSecondsReviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, RUNTIME_CLASSES, SERVICE_ACCOUNTS
from wharfinger.api.registry import Document
from wharfinger.api.views import decode
from wharfinger.api.views.core import LimitRange
from wharfinger.api.views.workloads import PriorityClass
from wharfinger.store.chain import Chain
from wharfinger.store.store import Store
from wharfinger.systems.placement.admission.reviewers import placement_reviewers
from wharfinger.systems.reservation.admission.quota import ReservationQuotaReviewer, StoredWorld
from wharfinger.systems.resource_class.admission.names import OverlaidReviewer
from wharfinger.systems.resource_class.admission.quota import alias_names
from wharfinger.systems.resource_class.admission.reviewers import ClassReviewer, RecordReviewer
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.scheduling_policy.admission.reviewer import SCHEDULERS
from wharfinger.systems.scheduling_policy.admission.stored import StoredRbac
from wharfinger.systems.scheduling_policy.admission.stored import reviewers as scheduling_policy_reviewers


def extend_chain(
    chain: Chain,
    store: Store,
    *,
    complete: bool = True,
    configuration: Configuration | None = None,
    rbac: RbacIndex | None = None,
) -> None:
    """Adds the default reviewers to a store's chain, in upstream's order of plugins, and scheduling policies around them.

    Policies inject before priority classes are resolved, and look last at what came of it. Quota is counted in the same
    step as the write. In a cluster that is not `complete`, pods may name service accounts and runtime classes that are not
    there. `rbac` may be given where another part follows the roles and bindings already.
    """
    settings = configuration or Configuration()
    injecting, checking = scheduling_policy_reviewers(store, settings.scheduling_policy, index=rbac)
    followed = StoredRbac(store) if rbac is None else None

    def authorize(asked: Attributes) -> bool:
        index = followed.index() if followed is not None else rbac
        return index is not None and index.allowed(asked).allowed

    def terminating(namespace: str) -> bool:
        found = store.peek(NAMESPACES, namespace)
        return found is not None and "deletionTimestamp" in found.document()["metadata"]

    defaults, access = placement_reviewers(
        store.now, authorize, terminating, default_set=settings.placement.default_cluster_set
    )

    ranges = Views(store, LIMIT_RANGES, LimitRange).get

    def priority_class(name: str) -> PriorityClass | None:
        found = store.peek(PRIORITY_CLASSES, name)
        return None if found is None else found.view(PriorityClass)

    priority_classes = Derived(
        store, PRIORITY_CLASSES, lambda found: tuple(decode(each.data, PriorityClass) for each in found)
    ).get

    def account(namespace: str, name: str) -> Document | None:
        found = store.peek(SERVICE_ACCOUNTS, name, namespace)
        if found is None:
            return None
        # All that a pod takes from its account; most have none, and need not be decoded for every pod.
        return found.document() if b"imagePullSecrets" in found.data else {}

    def runtime_class(name: str) -> Document | None:
        found = store.peek(RUNTIME_CLASSES, name)
        return None if found is None else found.document()

    chain.mutating += [
        injecting,
        LimitDefaultsReviewer(ranges),
        ServiceAccountReviewer(account if complete else None),
        PriorityReviewer(priority_class, priority_classes),
        TolerationSecondsReviewer(),
        StorageProtectionReviewer(),
        RuntimeClassReviewer(runtime_class, required=complete),
        *defaults,
    ]
    chain.validating += [LimitRangeReviewer(ranges), PriorityClassReviewer(priority_classes), *access, checking]
    schedulers = SCHEDULERS | set(settings.scheduling_policy.scheduler_identities)
    classes = Derived(store, RESOURCE_CLASSES, lambda found: [decode(each.data, ResourceClass) for each in found])
    chain.validating += [RecordReviewer(schedulers), OverlaidReviewer(classes.get, overlay=False)]
    aliases = Derived(
        store, RESOURCE_CLASSES, lambda found: alias_names(decode(each.data, ResourceClass) for each in found)
    )
    chain.final.append(ServiceAddressReviewer(store, any_address=not complete))
    chain.final.append(ClassReviewer(classes.get, groups=settings.resource_class.groups))
    if settings.reservation.charge_quota:
        reserving = ReservationQuotaReviewer(StoredWorld(store), store.now)
        chain.final += [reserving, QuotaReviewer(store, store.now, aliases=aliases.get, reserved=reserving.used)]
    else:
        chain.final.append(QuotaReviewer(store, store.now, aliases=aliases.get))
