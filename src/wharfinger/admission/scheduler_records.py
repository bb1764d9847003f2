"""Records of what a pod was given, such as devices or a reservation: annotations that only schedulers and node agents write.

Whoever could write such a record on a pod of their own would take what belongs to others. A record reaches a pod when
it is created, updated (under any subresource) or bound, so all of these are reviewed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec

from wharfinger.admission.rbac import MASTERS, Attributes
from wharfinger.admission.request import PASS, Request, Review, User
from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.kinds import pod_templates
from wharfinger.api.registry import Document
from wharfinger.system import systems

OWN_SCHEDULERS = frozenset(
    (
        "system:serviceaccount:kube-system:wharfinger-scheduler",
        "system:serviceaccount:wharfinger-system:wharfinger-scheduler",
    )
)
SCHEDULERS = OWN_SCHEDULERS | {"system:kube-scheduler", "system:serviceaccount:kube-system:kube-scheduler"}
"""The users under which schedulers run, besides those that settings name."""

NODE_USER = "system:node:"
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Extra attribute of a user whose token is bound to a pod: the node of that pod."""


class NodeRight(msgspec.Struct, frozen=True):
    """The right that makes a user the agent of a node: to update the cluster-scoped object of this resource that has
    the node's name."""

    group: str
    resource: str


class SchedulerRecord(msgspec.Struct, frozen=True):
    """An annotation that schedulers write. With `written_by`, the agent of the pod's node writes it instead, so no new
    pod may bring it along. `field` names a field of containers that shows the same record."""

    annotation: str
    field: str = ""
    written_by: NodeRight | None = None

    def held(self, document: Document) -> bool:
        """Whether the object has the record, in either form."""
        return bool(_annotation(document, self.annotation)) or any(self._fields(document))

    def changed(self, old: Document, new: Document) -> bool:
        """A field that is merely gone is no change: typed clients drop fields that they do not know, and the annotation
        stands for it."""
        if _annotation(old, self.annotation) != _annotation(new, self.annotation):
            return True
        if not self.field:
            return False
        before = dict(self._fields(old))
        return any(before.get(name) != value for name, value in self._fields(new))

    def _fields(self, document: Document) -> Iterator[tuple[str, Any]]:
        """The values of the field by container name, without empty ones."""
        spec = document.get("spec")
        if not self.field or not isinstance(spec, dict):
            return
        for part in ("initContainers", "containers", "ephemeralContainers"):
            for container in spec.get(part) or ():
                if isinstance(container, dict) and container.get(self.field):
                    yield str(container.get("name")), container[self.field]


class RecordVerdict(msgspec.Struct, frozen=True):
    """An error, unless the user has the right `unless`; or nothing to object to."""

    denied: ApiError | None = None
    unless: Attributes | None = None


_FINE = RecordVerdict()


def schedulers(configuration: Configuration) -> frozenset[str]:
    """All users and groups that count as schedulers."""
    return SCHEDULERS.union(_configured(configuration))


def own_schedulers(configuration: Configuration) -> frozenset[str]:
    """The users and groups under which our scheduler runs. It writes each record that a pod has when it binds it."""
    return OWN_SCHEDULERS.union(_configured(configuration))


def _configured(configuration: Configuration) -> Iterator[str]:
    return (name for system in systems() for name in system.scheduler_identities(configuration))


def is_one_of(user: User, identities: Collection[str]) -> bool:
    """Whether the identities name the user or one of its groups."""
    return user.name in identities or any(group in identities for group in user.groups)


def scheduler_records() -> tuple[SchedulerRecord, ...]:
    """The records of all systems."""
    return tuple(record for system in systems() for record in system.scheduler_records())


def is_binding(request: Request) -> bool:
    resource = request.resource
    return not resource.group and (
        resource.plural == "bindings" or (resource.plural == "pods" and request.subresource == "binding")
    )


class RecordRules:
    """Who may write which record.

    A new pod without a node may bring a record along as a wish, which its scheduler checks and writes anew in the
    Binding. Administrators (`system:masters`) may create pods that have a node with their records, since they restore
    whole clusters, and bind pods with records.
    """

    def __init__(self, schedulers: Collection[str], records: Sequence[SchedulerRecord]) -> None:
        self._schedulers = schedulers
        self._records = records
        self._written_on_nodes = tuple(record for record in records if record.written_by is not None)

    def judge(self, request: Request) -> RecordVerdict:
        """A verdict on everything but the pod that is bound, see `unanswered`."""
        new = request.object
        if new is None or is_one_of(request.user, self._schedulers):
            return _FINE
        if is_binding(request):
            if MASTERS in request.user.groups:
                return _FINE  # a scheduler that runs with an administrator's credentials
            return self._first(request, (each for each in self._records if each.held(new)))
        is_pod = (request.resource.group, request.resource.plural) == ("", "pods")
        if request.operation == "UPDATE":
            old = request.old or {}
            return self._first(request, (each for each in self._records if each.changed(old, new)))
        if not is_pod or request.subresource:
            return _FINE
        placed = bool((new.get("spec") or {}).get("nodeName"))
        if placed and MASTERS in request.user.groups:
            return _FINE
        for record in self._records if placed else self._written_on_nodes:
            if record.held(new):
                writers = "schedulers" if record.written_by is None else "the agent of its node"
                what = "pod with a node" if record.written_by is None else "pod"
                why = f"only {writers} may give annotation {record.annotation} to a {what}"
                return RecordVerdict(request.refused(why).denied)
        return _FINE

    def unanswered(self, request: Request, pod: Document) -> ApiError | None:
        """The error if a Binding leaves a record as the pod brought it along: nobody has checked that record."""
        binding = request.object or {}
        for record in self._records:
            if record.held(pod) and _annotation(binding, record.annotation) is None:
                why = f"the pod has annotation {record.annotation}, so only a scheduler that writes it may bind the pod"
                return forbidden("", "pods", request.name, why)
        return None

    def _first(self, request: Request, written: Iterator[SchedulerRecord]) -> RecordVerdict:
        for record in written:
            writers, right = "schedulers", None
            if record.written_by is not None:
                writers, right = "the agent of its node", _right(request, record.written_by)
            why = f"only {writers} may change annotation {record.annotation}"
            resource = ("", "pods") if is_binding(request) else (request.resource.group, request.resource.plural)
            return RecordVerdict(forbidden(*resource, request.name, why), right)
        return _FINE


def _right(request: Request, right: NodeRight) -> Attributes | None:
    """What the agent of the pod's node may do; None if the user is bound to another node."""
    node = str(((request.old or {}).get("spec") or {}).get("nodeName") or "")
    user = request.user
    if not node or is_binding(request):
        return None
    if user.name.startswith(NODE_USER) and user.name != f"{NODE_USER}{node}":
        return None
    if user.extra.get(NODE_OF_TOKEN, (node,)) != (node,):
        return None
    return Attributes(user, "update", right.group, right.resource, name=node)


class SchedulerRecordReviewer:
    """The rules in process. `authorize` answers who may do what, `pod` finds a pod with one of the annotations."""

    def __init__(
        self,
        rules: RecordRules,
        authorize: Callable[[Attributes], bool],
        pod: Callable[[str, str], Document | None],
    ) -> None:
        self._rules = rules
        self._authorize = authorize
        self._pod = pod

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return reviewed(group, plural)

    def repeats(self, request: Request) -> bool:
        """Unless the right of the user depends on the node."""
        return self._rules.judge(request) is _FINE

    def review(self, request: Request) -> Review:
        verdict = self._rules.judge(request)
        denied = verdict.denied
        if denied is not None and verdict.unless is not None and self._authorize(verdict.unless):
            denied = None
        if denied is None and is_binding(request) and (pod := self._pod(request.namespace, request.name)) is not None:
            denied = self._rules.unanswered(request, pod)
        return PASS if denied is None else Review(denied=denied)


def reviewed(group: str, plural: str) -> bool:
    """Pods, bindings, and objects that hold what a pod would be given."""
    if not group and plural in ("pods", "bindings"):
        return True
    kind = pod_templates().get((group, plural))
    return kind is not None and kind.pod_template_identity == "requester"


def _annotation(document: Document, name: str) -> object:
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations.get(name) if isinstance(annotations, dict) else None
