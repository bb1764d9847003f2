"""The one configuration document: `apiVersion: wharfinger.dev/v1alpha1, kind: WharfingerConfiguration`.

A block for each component; an absent block means its defaults. Unknown keys are refused by path. The `scheduler` block
has the form of a KubeSchedulerConfiguration and is read by the scheduler itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from wharfinger.api.fields import FieldError, describe

API_VERSION = "wharfinger.dev/v1alpha1"
KIND = "WharfingerConfiguration"

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Block(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all blocks."""


class Exempt(Block, frozen=True):
    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


class SchedulingPolicySettings(Block, frozen=True):
    mode: Literal["auto", "enforce", "warn", "audit"] = "auto"
    merge_strategy: Literal["deep", "first", "simple"] = "deep"
    identity: Literal["ServiceAccount", "ServiceAccountOrUser"] = "ServiceAccount"
    enforce_templates: bool = False
    default_scheduler_counts_as_unset: bool = True
    namespace_mode_label: bool = False  # whether a namespace label may lower the mode
    scheduler_identities: tuple[str, ...] = ()  # further users that may bind pods while policies are enforced
    exempt: Exempt = Exempt()


class ReservationSettings(Block, frozen=True):
    enable_preemption: bool = (
        False  # fake pods may preempt, and a preemptor gets a reservation for what its victims free
    )
    charge_quota: bool = False
    honour_ignored_label: bool = False
    gc_seconds: Count = 24 * 3600  # how long Succeeded and Expired ones are kept; 0 keeps them for ever
    gc_interval_seconds: Positive = 60


class ResourcePolicySettings(Block, frozen=True):
    deletion_cost: bool = True  # whether the controller writes pod deletion costs


class ResourceClassSettings(Block, frozen=True):
    groups: bool = False  # groupBy and groupSize
    rewrite_names: bool = False  # the webhook rewrites unqualified names to aliases
    overlay: bool = False  # the webhook adds the raw request beside the class
    startup_grace_seconds: Count = 15 * 60  # how long a new node may stay silent before it counts without devices


class PlacementSettings(Block, frozen=True):
    resync_seconds: Count = 0  # every placement is decided anew that often; 0: only when something that matters changed
    default_cluster_set: bool = True


class NodesSettings(Block, frozen=True):
    count: Count = 0  # sample nodes to create
    startup_seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.0  # how long a pod takes from bound to running
    lease_seconds: Positive = 40


class Configuration(Block, frozen=True):
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    scheduling_policy: SchedulingPolicySettings = SchedulingPolicySettings()
    reservation: ReservationSettings = ReservationSettings()
    resource_policy: ResourcePolicySettings = ResourcePolicySettings()
    resource_class: ResourceClassSettings = ResourceClassSettings()
    placement: PlacementSettings = PlacementSettings()
    nodes: NodesSettings = NodesSettings()


class BadConfiguration(ValueError):
    """The document is not a WharfingerConfiguration; every fault with its path."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__(describe(errors))
        self.errors = errors


def load_configuration(document: dict[str, Any]) -> Configuration:
    errors = _faults(document, Configuration, "")
    if not errors:
        try:
            return msgspec.convert(document, Configuration)
        except msgspec.ValidationError as error:
            errors.append(_invalid(error, ""))
    raise BadConfiguration(errors)


def _invalid(error: msgspec.ValidationError, path: str) -> FieldError:
    message, _, inside = str(error).partition(" - at `$")
    here = (path + inside.rstrip("`")).lstrip(".")
    return FieldError(here or "document", "FieldValueInvalid", message)


def _faults(document: dict[str, Any], block: type[msgspec.Struct], path: str) -> list[FieldError]:
    """All unknown keys and wrong values at once; msgspec alone would stop at the first."""
    known = {info.encode_name: info.type for info in msgspec.structs.fields(block)}
    errors = []
    for key, value in document.items():
        here = f"{path}.{key}" if path else key
        if key not in known:
            errors.append(
                FieldError(here, "FieldValueForbidden", f"unknown field; known here: {', '.join(sorted(known))}")
            )
        elif isinstance(value, dict) and isinstance(known[key], type) and issubclass(known[key], Block):
            errors += _faults(value, known[key], here)
        else:
            try:
                msgspec.convert(value, known[key])
            except msgspec.ValidationError as error:
                errors.append(_invalid(error, here))
    return errors
