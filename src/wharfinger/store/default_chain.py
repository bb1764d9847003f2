"""The admission chain of a cluster: what Kubernetes' default plugins do, and what the systems add.

The embedded server and the simulation both take their chain from here, so that a write meets the same rules in both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from wharfinger.admission.certificates import (
    CertificateRequesterReviewer,
    CertificateSignerReviewer,
    CertificateSubjectReviewer,
    PodCertificateChecker,
    TrustBundleReviewer,
)
from wharfinger.admission.device_claims import AdminAccessChecker, ClaimStatusChecker
from wharfinger.admission.device_expressions import DeviceExpressionChecker
from wharfinger.admission.device_taints import DeviceTaintReviewer
from wharfinger.admission.extension import AdmissionContext
from wharfinger.admission.limit_ranges import LimitDefaultsReviewer, LimitRangeReviewer
from wharfinger.admission.priority import PriorityClassReviewer, PriorityReviewer
from wharfinger.admission.quota import QuotaExtensions, QuotaReviewer
from wharfinger.admission.rbac import RbacIndex
from wharfinger.admission.reads import Derived, Views
from wharfinger.admission.runtime_class import RuntimeClassReviewer
from wharfinger.admission.scheduler_records import (
    RecordRules,
    SchedulerRecordReviewer,
    scheduler_records,
    schedulers,
)
from wharfinger.admission.service_accounts import SecretReferenceReviewer, ServiceAccountReviewer
from wharfinger.admission.service_addresses import ServiceAddressReviewer
from wharfinger.admission.storage_protection import StorageProtectionReviewer
from wharfinger.admission.stored_rbac import StoredRbac
from wharfinger.admission.toleration_seconds import TolerationSecondsReviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import LIMIT_RANGES, PODS, PRIORITY_CLASSES, RUNTIME_CLASSES, SERVICE_ACCOUNTS
from wharfinger.api.registry import Document
from wharfinger.api.token_volumes import TOKEN_VOLUME
from wharfinger.api.views import decode
from wharfinger.api.views.core import LimitRange
from wharfinger.api.views.workloads import PriorityClass
from wharfinger.store.chain import Chain
from wharfinger.store.store import Store
from wharfinger.system import systems

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from wharfinger.client.interface import Client

_READ_FOR_PODS = (b"imagePullSecrets", b"automountServiceAccountToken", b"enforce-mountable-secrets")


def extend_chain(
    chain: Chain,
    store: Store,
    *,
    complete: bool = True,
    configuration: Configuration | None = None,
    rbac: RbacIndex | None = None,
    metrics: CollectorRegistry | None = None,
    webhook: bool = False,
) -> list[Callable[[Client], Awaitable[None]]]:
    """Adds the stock reviewers to a store's chain, in upstream's order of plugins, and those of the systems around them.

    Quota is counted in the same step as the write. In a cluster that is not `complete`, pods may name service accounts
    and runtime classes that do not exist, and get no volume with a token. `rbac` is given where another component
    maintains the index already, and `metrics` by a running server, which also calls the returned functions of the
    systems now and then. With a `webhook`, systems for which that suffices review nothing here.
    """
    settings = configuration or Configuration()
    index = StoredRbac(store).index if rbac is None else lambda: rbac
    context = AdmissionContext(store, store.now, settings, index, metrics)
    of_systems = [
        found
        for system in systems()
        if not (webhook and system.webhook_suffices) and (found := system.reviewers(context)) is not None
    ]
    extensions = QuotaExtensions(each.quota for each in of_systems if each.quota is not None)
    ranges = Views(store, LIMIT_RANGES, LimitRange).get

    def priority_class(name: str) -> PriorityClass | None:
        found = store.peek(PRIORITY_CLASSES, name)
        return None if found is None else found.view(PriorityClass)

    priority_classes = Derived(
        store, PRIORITY_CLASSES, lambda found: tuple(decode(each.data, PriorityClass) for each in found)
    ).get

    last_account: tuple[object, Document] = (None, {})  # pods come many at a time for one account

    def account(namespace: str, name: str) -> Document | None:
        nonlocal last_account
        found = store.peek(SERVICE_ACCOUNTS, name, namespace)
        if found is None:
            return None
        if found is not last_account[0]:
            # All that matters to a pod; most accounts have none of it, and need not be decoded.
            last_account = found, found.document() if any(part in found.data for part in _READ_FOR_PODS) else {}
        return last_account[1]

    def runtime_class(name: str) -> Document | None:
        found = store.peek(RUNTIME_CLASSES, name)
        return None if found is None else found.document()

    records = scheduler_records()
    annotations = [record.annotation.encode() for record in records]
    fields = [record.field.encode() for record in records if record.field]

    def recorded_pod(namespace: str, name: str) -> Document | None:
        found = store.peek(PODS, name, namespace)
        if found is None:
            return None
        data = found.data  # most pods have no record, and need not be decoded for every binding
        marks = [*fields, *annotations] if b'"annotations":' in data else fields
        return found.document() if any(mark in data for mark in marks) else None

    chain.mutating += [
        *(reviewer for each in of_systems for reviewer in each.before_stock),
        LimitDefaultsReviewer(ranges, extensions.names),
        ServiceAccountReviewer(account, store.generate_name(TOKEN_VOLUME)) if complete else ServiceAccountReviewer(),
        PriorityReviewer(priority_class, priority_classes),
        TolerationSecondsReviewer(),
        StorageProtectionReviewer(),
        RuntimeClassReviewer(runtime_class, required=complete),
        CertificateRequesterReviewer(store.now),
        DeviceTaintReviewer(store.now),
        *(reviewer for each in of_systems for reviewer in each.mutating),
    ]
    chain.checking += [
        AdminAccessChecker(store),
        ClaimStatusChecker(lambda asked: index().allowed(asked)),
        DeviceExpressionChecker(),
        PodCertificateChecker(lambda asked: index().allowed(asked), store.now),
    ]
    chain.validating += [
        LimitRangeReviewer(ranges, extensions.names),
        *([SecretReferenceReviewer(account)] if complete else []),
        PriorityClassReviewer(priority_classes),
        SchedulerRecordReviewer(RecordRules(schedulers(settings), records), context.authorize, recorded_pod),
        CertificateSubjectReviewer(),
        CertificateSignerReviewer(lambda asked: index().allowed(asked)),
        TrustBundleReviewer(lambda asked: index().allowed(asked)),
        *(reviewer for each in of_systems for reviewer in each.validating),
    ]
    chain.final += [
        ServiceAddressReviewer(store, any_address=not complete),
        *(reviewer for each in of_systems for reviewer in each.final),
        QuotaReviewer(store, store.now, extensions),
    ]
    chain.seen_on_bind += [*fields, *annotations]
    chain.on_bind += [each.on_bind for each in of_systems if each.on_bind is not None]
    return [each.upkeep for each in of_systems if each.upkeep is not None]
