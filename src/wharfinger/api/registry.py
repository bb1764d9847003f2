"""The registry of kinds: what an API server serves, and how each kind is named, defaulted, validated and printed.

`Resource` identifies a collection (`PODS`, `DEPLOYMENTS` in `wharfinger.api.kinds.builtin`). `Kind` has everything that
the store, the API server and the command line need to know about it. A `Registry` changes at run time when users create
CustomResourceDefinitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from wharfinger.api.fields import FieldError

Document = dict[str, Any]
"""An object as JSON: the only form in which objects are stored and written."""


class Resource(msgspec.Struct, frozen=True):
    """One served collection: group, version and plural, with the kind and scope that go with it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_plural(self) -> str:
        """`pods` or `deployments.apps`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path; an empty namespace means all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`. It shows the field at `path`, or what `cell` returns for a document and the time."""

    name: str
    path: str = ""  # dotted JSON path below the document, such as `spec.units[*].name`
    type: str = "string"  # string, integer, number, boolean, date
    description: str = ""
    priority: int = 0  # 0 always shown, 1 with `-o wide`
    cell: Callable[[Document, float], Any] | None = None


DefaultFn = Callable[[Document], None]
"""Fills absent fields in place."""
ValidateFn = Callable[[Document, Document | None], list[FieldError]]
"""Returns all faults of a new document; the old one is given on update."""
UpdateFn = Callable[[Document, Document], None]
"""Changes a new document in place, given the old one."""
WarnFn = Callable[[Document, Document | None], Iterable[str]]
"""Returns warnings about a valid document; the old one is given on update."""
ConvertFn = Callable[[Document, str], Document]
"""Returns the document in the named version, or in the form of the named group."""


class RemoteConversion(Protocol):
    """Conversion between the versions of a kind by somebody who has to be asked, such as a webhook."""

    def known(self, document: Document, version: str) -> Document | None:
        """The document in a version, if it was converted before."""
        ...

    async def convert(self, documents: Sequence[Document], version: str, *, listed: bool = False) -> list[Document]:
        """Documents in a version; `listed` if they are a list. Raises ApiError."""
        ...

    def faults(self, document: Document, version: str) -> list[FieldError]:
        """The faults of a document in the version in which it was given. Fills its defaults in place."""
        ...


class Scale(msgspec.Struct, frozen=True):
    """The paths of the scale subresource, as in a CRD."""

    spec_path: str = "spec.replicas"
    status_path: str = "status.replicas"
    selector_path: str = ""  # of a selector in text form; empty: spec.selector is a label selector


class KindExtension(msgspec.Struct, frozen=True):
    """Defaulting and validation that a system adds to a kind of the core."""

    default: DefaultFn | None = None
    validate: ValidateFn | None = None


class Kind(msgspec.Struct, frozen=True, eq=False):
    """Everything known about one kind. `versions` are the served versions, the preferred one first."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = True
    singular: str = ""
    listed_as: str = ""  # the kind of lists of it; default: its name and `List`
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage_version: str = ""  # default: the first of versions
    computed: bool = False  # read only, and made from other objects when somebody asks (metrics)
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    status: bool = False  # has a status subresource, through which alone status is written
    status_on_create: bool = False  # status is kept on create (nodes)
    scale: Scale | None = None
    subresources: tuple[str, ...] = ()  # others: binding, eviction, ephemeralcontainers, …
    graceful: bool = False  # deletion waits for the grace period (pods)
    generation: bool = True  # metadata.generation counts changes outside metadata and status
    annotations_in_generation: bool = False  # changes of annotations count too (deployments pass them on)
    create_on_update: bool = False  # an update of an absent object creates it
    unconditional_update: bool = True  # an update may leave out resourceVersion; never true of custom resources
    returns_deleted: bool = False  # a delete that takes effect at once returns the object instead of a Status
    orphans: bool = False  # dependents stay when it is deleted without a propagation policy
    orphaning_warning: str = ""  # the warning that such a delete gets
    deprecated: str = ""  # the warning that every request gets
    name_faults: Callable[[str], list[str]] | None = None  # default: DNS subdomain
    selectable: tuple[str, ...] = ()  # for field selectors, in addition to metadata.name and metadata.namespace
    selectable_in: Mapping[str, tuple[str, ...]] | None = None  # the same by served version, where versions differ
    indexed: tuple[str, ...] = ()  # of these, by which many watchers select few objects each
    columns: tuple[Column, ...] = ()  # after Name, unless they include it
    default: DefaultFn | None = None
    refresh: DefaultFn | None = (
        None  # brings a stored object up to date with a schema that changed since it was written
    )
    revision: int = 0  # of that schema
    default_status: DefaultFn | None = None  # replaces `default` for writes to status
    prepare_create: DefaultFn | None = None  # what the server itself sets on create, overriding the client
    prepare_update: UpdateFn | None = None  # the same on update of the object itself
    prepare_status: UpdateFn | None = None  # the same on update of its status
    warn: WarnFn | None = None
    validate: ValidateFn | None = None
    keeps_nulls: bool = (
        False  # nulls in spec reach validation; dropping one could leave an empty object, which has a meaning
    )
    validate_subresource: Mapping[str, ValidateFn] = msgspec.field(
        default_factory=dict
    )  # replaces `validate`, by subresource
    convert: ConvertFn | None = None
    conversion: RemoteConversion | None = None  # instead of `convert`
    convert_group: ConvertFn | None = None  # for alias groups with other field names
    schema: Callable[[str], Document] | None = None  # OpenAPI v3 schema of a version; None for built-in kinds
    in_snapshots: bool = True  # decisions depend on objects of it, so `wharf snapshot` takes them
    churns: bool = False  # its objects change all the time, and no reviewer of pods and events looks at them
    ours: bool = False  # shipped as a CRD by `wharf crds`
    custom: bool = False  # defined by a CRD that a user created
    pod_template: str = ""  # path of the pod template, such as `spec.template`
    pod_template_identity: Literal["account", "requester"] = "account"  # whose permissions its pods are checked with
    notes_requester: bool = False  # admission notes who wrote an object, since controllers create others on its behalf
    alias_groups: tuple[str, ...] = ()  # further groups under which the embedded server serves the same objects

    def resource(self, version: str = "", group: str | None = None) -> Resource:
        return _resource(self, version or self.versions[0], self.group if group is None else group)

    def extended(self, extension: KindExtension) -> Kind:
        """This kind with the functions of a system called after its own."""
        changes: dict[str, Any] = {}
        if extension.default is not None:
            changes["default"] = _both(self.default, extension.default)
            if self.default_status is not None:
                changes["default_status"] = _both(self.default_status, extension.default)
        if extension.validate is not None:
            changes["validate"] = _all(self.validate, extension.validate)
        return replace(self, **changes)

    def defaulter(self, subresource: str) -> DefaultFn | None:
        """The defaulting of a write to the object or to a subresource."""
        return self.default_status if subresource == "status" and self.default_status is not None else self.default

    def validator(self, subresource: str = "") -> ValidateFn | None:
        """The validation of a write to the object or to a subresource."""
        return self.validate_subresource.get(subresource, self.validate)

    @property
    def builtin(self) -> bool:
        """Whether Kubernetes has this kind itself; all others behave as custom resources do."""
        return not (self.ours or self.custom)

    @property
    def list_kind(self) -> str:
        """The kind of a list of its objects."""
        return self.listed_as or f"{self.kind}List"

    @property
    def needs_version(self) -> bool:
        """Whether an update must carry the resourceVersion it is based on."""
        return not (self.builtin and self.unconditional_update)

    @property
    def stored(self) -> bool:
        """Whether objects of it are stored; reviews, bindings and metrics are not."""
        return "get" in self.verbs and not self.computed

    @property
    def storage(self) -> Resource:
        """The resource under which objects are stored."""
        return self.resource(self.storage_version or self.versions[0])


def _both(first: DefaultFn | None, second: DefaultFn) -> DefaultFn:
    def default(document: Document) -> None:
        if first is not None:
            first(document)
        second(document)

    return default


def _all(first: ValidateFn | None, second: ValidateFn) -> ValidateFn:
    def validate(document: Document, old: Document | None) -> list[FieldError]:
        return [*(first(document, old) if first is not None else ()), *second(document, old)]

    return validate


@lru_cache(4096)
def _resource(kind: Kind, version: str, group: str) -> Resource:
    return Resource(group, version, kind.plural, kind.kind, kind.namespaced)


class Registry(msgspec.Struct):
    """Kinds by group and plural, by apiVersion and kind, or by any name that users type."""

    _by_plural: dict[tuple[str, str], Kind] = msgspec.field(default_factory=dict)
    _by_kind: dict[tuple[str, str], Kind] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, kinds: Iterable[Kind]) -> Registry:
        registry = cls()
        for kind in kinds:
            registry.add(kind)
        return registry

    def add(self, kind: Kind) -> None:
        for group in (kind.group, *kind.alias_groups):
            self._by_plural[group, kind.plural] = kind
            self._by_kind[group, kind.kind] = kind

    def remove(self, kind: Kind) -> None:
        for group in (kind.group, *kind.alias_groups):
            self._by_plural.pop((group, kind.plural), None)
            self._by_kind.pop((group, kind.kind), None)

    def __iter__(self) -> Iterator[Kind]:
        return iter({id(kind): kind for kind in self._by_plural.values()}.values())

    def of_plural(self, group: str, plural: str) -> Kind | None:
        return self._by_plural.get((group, plural))

    def of_resource(self, resource: Resource) -> Kind:
        return self._by_plural[resource.group, resource.plural]

    def of_object(self, api_version: str, kind: str) -> Kind | None:
        """The kind of a manifest, if this version of it is served."""
        group, _, version = api_version.rpartition("/")
        found = self._by_kind.get((group, kind))
        return found if found is not None and version in found.versions else None

    def resource_of(self, document: Mapping[str, Any]) -> Resource | None:
        """The resource a manifest belongs to, in the manifest's own version and group."""
        api_version = str(document.get("apiVersion") or "")
        found = self.of_object(api_version, str(document.get("kind") or ""))
        if found is None:
            return None
        group, _, version = api_version.rpartition("/")
        return found.resource(version, group)

    def find(self, name: str) -> Kind | None:
        """The kind for a name that a user typed: `pods`, `pod`, `po`, `Pod`, `deployments.apps`, `placement`."""
        lowered, _, group = name.lower().partition(".")
        for kind in self:
            names = (kind.plural, kind.singular or kind.kind.lower(), *kind.short_names)
            if lowered in names and (not group or group in (kind.group, *kind.alias_groups)):
                return kind
        return None
