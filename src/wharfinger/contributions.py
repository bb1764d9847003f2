"""What systems hand to the commands, reports and manifests.

`wharfinger.system.System` has a method for each of them. Nothing here knows any particular system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Resource
    from wharfinger.client.interface import Client

Document = dict[str, Any]
ComparedKey = tuple[str, str, str]
"""Kind, namespace and name of an object that `wharf plan` compares."""


class ReportSection(msgspec.Struct, frozen=True):
    """A table of `wharf simulate`; a section without rows is not shown."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]


class StatusPart(msgspec.Struct, frozen=True):
    """What a system tells `wharf status`: data for JSON and YAML, and a line of text."""

    document: Document = msgspec.field(default_factory=dict)
    line: str = ""


class Sample(msgspec.Struct, frozen=True):
    """The manifests of `wharf up --sample`, loaded by file name across all systems."""

    folder: Traversable
    hints: tuple[str, ...] = ()  # commands worth trying, shown after the summary
    ready: Mapping[str, Callable[[Document], bool]] = msgspec.field(default_factory=dict)
    """By kind: when the next object may be created."""
    awaited: tuple[Resource, ...] = ()  # kinds that must have an object before the summary is shown


class SystemReport:
    """What a system tells in reports. Every attribute and method has a default that tells nothing."""

    kinds: ClassVar[Sequence[Resource]] = ()
    """The kinds that `sections` reads."""

    compared_noun: ClassVar[str] = ""
    """What `compared` is about, as a noun in the singular."""

    status_key: ClassVar[str] = ""
    """The key of `status` in the JSON of `wharf status`; empty if the system has nothing to tell."""

    sample: ClassVar[Sample | None] = None

    def sections(self, objects: Sequence[Document]) -> Sequence[ReportSection]:
        """Tables of `wharf simulate` about these objects, which are of any kind."""
        return ()

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> Mapping[ComparedKey, Mapping[str, Any]]:
        """The facts that `wharf plan` compares before and after a change; `objects` lists all objects of a kind."""
        return {}

    def known_ends(self, objects: Callable[[Resource], Sequence[Document]]) -> Mapping[str, float]:
        """When objects of this system end by themselves and give room back, in seconds since the epoch, by what they are
        called in a sentence."""
        return {}

    def measures(self, objects: Callable[[Resource], Sequence[Document]]) -> Mapping[str, float]:
        """Shares and numbers that `wharf replay` follows over time, by what they are called in a legend."""
        return {}

    def lacking(self, pod_annotations: Collection[str]) -> Mapping[str, str]:
        """Kinds of this system that a snapshot without any object of them lacks, judged by the annotations that its pods
        have, and what is not safe to say without them."""
        return {}

    async def status(self, client: Client, configuration: Configuration) -> StatusPart | None:
        """What `wharf status` tells about a control plane that runs with this configuration."""
        return None

    screen: ClassVar[str] = ""
    """The screen of the dashboard that `screen_view` fills: promises, units, fleet or policy."""

    screen_kinds: ClassVar[Sequence[Resource]] = ()
    """The kinds that `screen_view` and `node_marks` read."""

    def screen_view(
        self, objects: Callable[[Resource], Sequence[Document]], now: float
    ) -> Mapping[str, Sequence[Document]]:
        """What the dashboard shows on `screen`: rows by name of the table. `objects` lists what the caller may see."""
        return {}

    def suggestion(self, objects: Callable[[Resource], Sequence[Document]], namespace: str) -> Sequence[Document]:
        """Manifests that the dashboard suggests on `screen` for what runs in a namespace."""
        return ()

    def node_marks(self, objects: Callable[[Resource], Sequence[Document]]) -> Mapping[str, Mapping[str, Any]]:
        """By node, what this system keeps there: `reserved` amounts, `devices`, the `unit` that the node belongs to."""
        return {}

    def startup_note(self, configuration: Configuration) -> str:
        """A few words about the settings, for the line that `wharf webhook` prints when it starts."""
        return ""


class RoleRule(NamedTuple):
    """A rule of a role; resources and verbs are separated by blanks."""

    group: str
    resources: str
    verbs: str
    names: tuple[str, ...] = ()

    def document(self) -> Document:
        made: Document = {
            "apiGroups": [self.group],
            "resources": self.resources.split(),
            "verbs": self.verbs.split(),
        }
        return {**made, "resourceNames": sorted(self.names)} if self.names else made


class EmbeddedAccess(msgspec.Struct, frozen=True):
    """Rules that a system adds to the default roles of the embedded API server."""

    view: tuple[RoleRule, ...] = ()
    edit: tuple[RoleRule, ...] = ()
    scheduler: tuple[RoleRule, ...] = ()
    nodes: tuple[RoleRule, ...] = ()


class SystemProcess(msgspec.Struct, frozen=True):
    """A program of its own, `wharf NAME`, that runs some controllers instead of `wharf controllers`."""

    name: str
    user: str  # on the embedded API server; its role has the same name
    controllers: tuple[str, ...] = ()
    lease: str = ""  # for the election of a leader, in kube-system
    embedded_rules: tuple[RoleRule, ...] = ()
    cluster_rules: tuple[RoleRule, ...] = ()  # on a real cluster


class InstallTrace(msgspec.Struct, frozen=True):
    """What a component writes on objects that are not its own, and what uninstalling does about it."""

    resource: Resource
    undo: Callable[[Document], Document | None]  # the merge patch that removes it; None if the object has nothing of it
    done: str  # what to say of an object without it


class InstallComponent(msgspec.Struct, frozen=True):
    """What `wharf install --components NAME` puts onto a real cluster."""

    name: str
    kinds: tuple[tuple[str, str], ...] = ()  # group and plural
    controllers: tuple[str, ...] = ()  # that `wharf controllers` runs
    processes: tuple[str, ...] = ()  # Deployments
    needs: tuple[str, ...] = ()  # other components
    rivals: tuple[str, ...] = ()  # programs of other projects that control the same kinds
    shared_groups: tuple[str, ...] = ()  # API groups whose definitions another project may have brought
    scheduler_rules: tuple[RoleRule, ...] = ()
    controller_rules: tuple[RoleRule, ...] = ()
    webhook_rules: tuple[RoleRule, ...] = ()
    objects: tuple[Document, ...] = ()  # roles and bindings; an administrator may take them over
    is_shipped: Callable[[Document], bool] = lambda document: False
    """Whether an object of its kinds is one that it creates itself, so that nothing is lost with it."""
    traces: tuple[InstallTrace, ...] = ()


class Installation(msgspec.Struct, frozen=True):
    """What a system needs in order to run, on a real cluster and with the embedded API server."""

    component: InstallComponent | None = None  # of `wharf install`
    embedded: EmbeddedAccess = EmbeddedAccess()
    processes: tuple[SystemProcess, ...] = ()
