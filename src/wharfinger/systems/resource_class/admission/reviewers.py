"""Admission of ResourceClasses: aliases are unique, and device groups need `resourceClass.groups`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wharfinger.admission.extension import AdmissionContext, BindCompletion, SystemReviewers
from wharfinger.admission.reads import Derived
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import invalid_object
from wharfinger.api.fields import FieldError, duplicate, invalid
from wharfinger.api.fields import forbidden as forbidden_field
from wharfinger.api.views import decode, view
from wharfinger.systems.resource_class.admission.binding import SHOWN_BY, show_devices
from wharfinger.systems.resource_class.admission.names import OverlaidReviewer
from wharfinger.systems.resource_class.admission.quota import StoredAliases
from wharfinger.systems.resource_class.admission.unknown_names import StoredNodeResources, UnknownNameReviewer
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import FORMER_ALIASES, ResourceClass
from wharfinger.systems.resource_class.settings import ResourceClassSettings

Classes = Callable[[], Iterable[ResourceClass]]


class ClassReviewer:
    """Rejects an alias that is already in use. The check is atomic with the write, so of two concurrent classes with
    the same alias only one is admitted."""

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
            yield forbidden_field("spec.groupBy", "device groups are switched off (resourceClass.groups)")
        others = [each for each in self._classes() if each.name != new.name]
        if any(each.alias == new.alias for each in others):
            yield duplicate("spec.alias", new.alias)
        if any(each.spec.resource_name == new.alias for each in (*others, new)):
            yield invalid("spec.alias", new.alias, "is the raw resource of a class")
        for each in others:
            if each.alias == new.spec.resource_name:
                yield invalid("spec.resourceName", new.spec.resource_name, f"is the alias of class {each.name}")


class FormerAliasReviewer:
    """Mutating: notes the alias that a class had before."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural, subresource) == (RESOURCE_CLASSES.group, RESOURCE_CLASSES.plural, "")

    def review(self, request: Request) -> Review:
        if not _is_class(request) or request.object is None or request.old is None:
            return PASS
        old, new = (view(each, ResourceClass) for each in (request.old, request.object))
        former = [each for each in dict.fromkeys((*old.former_aliases, *new.former_aliases)) if each != new.alias]
        if old.alias not in (new.alias, *former):
            former.append(old.alias)
        if former or FORMER_ALIASES in new.metadata.annotations:
            metadata = request.object.setdefault("metadata", {})
            metadata["annotations"] = {**(metadata.get("annotations") or {}), FORMER_ALIASES: ",".join(former)}
        return PASS


def _is_class(request: Request) -> bool:
    resource = request.resource
    return (resource.group, resource.plural) == (RESOURCE_CLASSES.group, RESOURCE_CLASSES.plural) and (
        request.operation in ("CREATE", "UPDATE") and not request.subresource
    )


def stored_reviewers(context: AdmissionContext) -> SystemReviewers:
    """The reviewers for an in-process store."""
    classes = Derived(
        context.objects, RESOURCE_CLASSES, lambda found: [decode(each.data, ResourceClass) for each in found]
    )
    settings = context.configuration.of(ResourceClassSettings)
    return SystemReviewers(
        mutating=[FormerAliasReviewer()],
        validating=[
            OverlaidReviewer(classes.get, overlay=False),
            UnknownNameReviewer(classes.get, StoredNodeResources(context.objects).get),
        ],
        final=[ClassReviewer(classes.get, groups=settings.groups)],
        quota=StoredAliases(context.objects),
        on_bind=BindCompletion(show_devices, SHOWN_BY),
    )
