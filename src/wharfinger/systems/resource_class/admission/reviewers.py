"""What admission decides of device classes: aliases that only one class has, the switch for groups, and who may write
the records of a pod's devices and of its reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import forbidden, invalid_object
from wharfinger.api.fields import FieldError, duplicate, invalid
from wharfinger.api.fields import forbidden as forbidden_field
from wharfinger.api.registry import Document
from wharfinger.api.views import view
from wharfinger.systems.reservation.rules.reservations import ALLOCATED
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.compute_resources import RECORD

Classes = Callable[[], Iterable[ResourceClass]]


class ClassReviewer:
    """An alias means one class. Decides in the same step as the write, so that of two classes with one alias only the
    first passes."""

    def __init__(self, classes: Classes, *, groups: bool) -> None:
        self._classes = classes
        self._groups = groups

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural, subresource) == (RESOURCE_CLASSES.group, RESOURCE_CLASSES.plural, "")

    def review(self, request: Request) -> Review:
        if not _is_class(request) or request.object is None:
            return PASS
        faults = list(self._faults(view(request.object, ResourceClass)))
        if not faults:
            return PASS
        return Review(denied=invalid_object(RESOURCE_CLASSES.group, RESOURCE_CLASSES.kind, request.name, faults))

    def _faults(self, new: ResourceClass) -> Iterable[FieldError]:
        if new.spec.group_by and not self._groups:
            yield forbidden_field("spec.groupBy", "groups of devices are switched off (resourceClass.groups)")
        others = [each for each in self._classes() if each.name != new.name]
        if any(each.alias == new.alias for each in others):
            yield duplicate("spec.alias", new.alias)
        if any(each.spec.resource_name == new.alias for each in (*others, new)):
            yield invalid("spec.alias", new.alias, "is the raw resource of a class")
        for each in others:
            if each.alias == new.spec.resource_name:
                yield invalid("spec.resourceName", new.spec.resource_name, f"is the alias of class {each.name}")


class RecordReviewer:
    """A record may come with a new pod; afterwards only schedulers write it, on the pod or with its Binding, whose
    annotations become the pod's. Whoever could name a reservation on a pod of his own would use it up without being an
    owner."""

    def __init__(self, schedulers: Collection[str]) -> None:
        self._schedulers = schedulers

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural) in (("", "pods"), ("", "bindings"))

    def review(self, request: Request) -> Review:
        resource = (request.resource.group, request.resource.plural)
        if request.object is None or request.user.name in self._schedulers:
            return PASS
        old: Document | None
        if resource == ("", "pods") and request.operation == "UPDATE":
            old = request.old
        elif resource == ("", "pods") and not request.subresource and _is_placed(request.object):
            # No scheduler looks at it, which would empty the annotation. Administrators bring whole clusters along.
            if _record(request.object, ALLOCATED) and "system:masters" not in request.user.groups:
                why = f"only schedulers may give annotation {ALLOCATED} to a pod with a node"
                return Review(denied=forbidden("", "pods", request.name, why))
            old = None
        elif resource == ("", "bindings") or (resource == ("", "pods") and request.subresource == "binding"):
            old = {}
        else:
            old = None
        if old is None:
            return PASS
        for name in (RECORD, ALLOCATED):
            if _record(request.object, name) != _record(old, name):
                why = f"only schedulers may change annotation {name}"
                return Review(denied=forbidden("", "pods", request.name, why))
        return PASS


def _is_class(request: Request) -> bool:
    resource = request.resource
    return (resource.group, resource.plural) == (RESOURCE_CLASSES.group, RESOURCE_CLASSES.plural) and (
        request.operation in ("CREATE", "UPDATE") and not request.subresource
    )


def _is_placed(document: Document) -> bool:
    return bool((document.get("spec") or {}).get("nodeName"))


def _record(document: Document, name: str) -> object:
    return ((document.get("metadata") or {}).get("annotations") or {}).get(name)
