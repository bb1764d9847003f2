"""On whose behalf controllers act: admission notes who wrote an object in an annotation, and controllers pass it on to the
objects that they create for it."""

from __future__ import annotations

import msgspec

from wharfinger.admission.rbac import MASTERS
from wharfinger.admission.request import PASS, Request, Review, User
from wharfinger.api.defaults.walk import value_at
from wharfinger.api.kinds import known_kinds
from wharfinger.api.registry import Document

REQUESTER = "wharfinger.dev/requester"
"""Annotation: the user who wrote the object. Only admission sets it, and controllers copy it."""

CONTROLLERS = frozenset(
    ("system:kube-controller-manager", "system:serviceaccount:wharfinger-system:wharfinger-controllers")
)


class _Requester(msgspec.Struct, frozen=True, omit_defaults=True):
    """As in the spec of a CertificateSigningRequest."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


def controllers_in(namespace: str) -> frozenset[str]:
    """The users of our controllers, which are installed in this namespace."""
    return CONTROLLERS | {f"system:serviceaccount:{namespace}:wharfinger-controllers"} if namespace else CONTROLLERS


def format_requester(user: User) -> str:
    return msgspec.json.encode(_Requester(user.name, user.uid, user.groups, user.extra)).decode()


def requester_of(document: Document | None) -> User | None:
    """The user in the annotation; None if it is missing or malformed."""
    text = _noted(document)
    try:
        found = msgspec.json.decode(text, type=_Requester) if isinstance(text, str) else None
    except msgspec.DecodeError:
        return None
    return None if found is None else User(found.username, found.groups, found.uid, found.extra)


class RequesterReviewer:
    """Notes the requester of kinds that say so (`notes_requester`), and of no others. A `mutating` instance writes the
    annotation, the other refuses one that a later reviewer changed."""

    def __init__(self, controllers: frozenset[str], *, mutating: bool) -> None:
        self._controllers = controllers
        self._mutating = mutating
        self._kinds = {
            (kind.group, kind.plural): kind
            for kind in known_kinds()
            if kind.notes_requester or kind.pod_template_identity == "requester"
        }

    @property
    def resources(self) -> tuple[tuple[str, str], ...]:
        """Group and plural of the kinds that are reviewed."""
        return tuple(self._kinds)

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return not subresource and (group, plural) in self._kinds

    def review(self, request: Request) -> Review:
        new = request.object
        if new is None or request.subresource or request.operation not in ("CREATE", "UPDATE"):
            return PASS
        if (request.resource.group, request.resource.plural) not in self._kinds:
            return PASS
        right = self._right(request)
        if right == _noted(new):
            return PASS
        if not self._mutating:
            return request.refused(
                f"annotation {REQUESTER} names the user who wrote the object; only admission sets it"
            )
        metadata = new.setdefault("metadata", {})
        annotations = {**(metadata.get("annotations") or {})}
        annotations.pop(REQUESTER, None)
        if right is not None:
            annotations[REQUESTER] = right
        if annotations or "annotations" in metadata:
            metadata["annotations"] = annotations
        return PASS

    def _right(self, request: Request) -> object:
        """The annotation as it should be."""
        kind = self._kinds[request.resource.group, request.resource.plural]
        user, creates = request.user, request.operation == "CREATE"
        trusted = user.name in self._controllers or (creates and MASTERS in user.groups)
        if trusted and requester_of(request.object) is not None:
            return _noted(request.object)  # passed on by a controller, or restored
        path = kind.pod_template or "spec"
        if not creates and value_at(request.object, path) == value_at(request.old, path):
            return _noted(request.old)
        return format_requester(user) if kind.notes_requester else None


def _noted(document: Document | None) -> object:
    metadata = (document or {}).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations.get(REQUESTER) if isinstance(annotations, dict) else None
