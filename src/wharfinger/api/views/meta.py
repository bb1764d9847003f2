"""Views of the metadata and conditions that all kinds share."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views.base import View


class OwnerReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> ObjectKey:
        return self.namespace, self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference of the managing controller, if there is one."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Condition(View, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""
    last_probe_time: str | None = None  # kube-apiserver writes null
    last_heartbeat_time: str = ""  # of nodes


class ConditionsStatus(View, frozen=True):
    """A status with conditions, and the base of those that have more."""

    conditions: tuple[Condition, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)


class ObjectView(View, frozen=True):
    """Base of the views of whole objects."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class Metadata(ObjectView, frozen=True):
    """Any object, of which only the metadata matters."""

    api_version: str = ""
    kind: str = ""
