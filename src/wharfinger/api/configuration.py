"""The one configuration document: `apiVersion: wharfinger.dev/v1alpha1, kind: WharfingerConfiguration`.

It has a block for the scheduler, one for simulated nodes and one for each system that brings settings; an absent block
means the defaults. `kubernetesVersion` names the version of Kubernetes whose rules apply. Unknown keys are refused with their path. The `scheduler` block has the form of a
KubeSchedulerConfiguration and is read by the scheduler itself.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import replace

from wharfinger.api.fields import FieldError, describe, not_supported
from wharfinger.api.kubernetes_version import SUPPORTED, KubernetesVersion, named_version
from wharfinger.system import settings_key, systems, systems_left_out

API_VERSION = "wharfinger.dev/v1alpha1"
KIND = "WharfingerConfiguration"

PUBLISHED_NAME = "wharfinger-config"
"""The ConfigMap in which a control plane publishes its configuration, under the key below: that of the embedded API server
in kube-system, that of `wharf install` in its own namespace."""
PUBLISHED_KEY = "config.yaml"

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Block(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all blocks."""


class NodesSettings(Block, frozen=True):
    count: Count = 0  # sample nodes to create
    startup_seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.0  # how long a pod takes from bound to running
    lease_seconds: Positive = 40


S = TypeVar("S", bound=Block)


class _CoreBlocks(Block, frozen=True):
    """The keys of the document that do not belong to a system."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    scheduler: dict[str, Any] = msgspec.field(default_factory=dict)
    nodes: NodesSettings = NodesSettings()
    kubernetes_version: str | None = None


class Configuration(msgspec.Struct, frozen=True):
    """`of(ReservationSettings)` gives the block of a system, with its defaults where the document has none."""

    scheduler: dict[str, Any] = msgspec.field(default_factory=dict)
    nodes: NodesSettings = msgspec.field(default_factory=NodesSettings)
    blocks: tuple[Block, ...] = ()
    kubernetes: KubernetesVersion | None = None  # None: that of the server, or the reference where there is none

    def of(self, block: type[S]) -> S:
        return next((each for each in self.blocks if isinstance(each, block)), None) or block()

    def document(self) -> dict[str, Any]:
        """The document that `load_configuration` reads; defaults included."""
        keys = {each: key for key, each in settings_by_key().items()}
        blocks = {keys[type(block)]: msgspec.to_builtins(block) for block in self.blocks}
        core = {"scheduler": self.scheduler, "nodes": msgspec.to_builtins(self.nodes)}
        known = {} if self.kubernetes is None else {"kubernetesVersion": str(self.kubernetes)}
        return {"apiVersion": API_VERSION, "kind": KIND, **known, **core, **blocks}

    def having(self, *blocks: Block) -> Configuration:
        """This configuration with the given blocks in place of its own."""
        types = {type(block) for block in blocks}
        return replace(self, blocks=(*(each for each in self.blocks if type(each) not in types), *blocks))


class BadConfiguration(ValueError):
    """The document is not a WharfingerConfiguration; every fault with its path."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__(describe(errors))
        self.errors = errors


def load_configuration(document: dict[str, Any]) -> Configuration:
    """The settings of systems that are left out do not matter."""
    ignored = {settings_key(name) for name in systems_left_out()}
    document = {key: value for key, value in document.items() if key not in ignored}
    of_systems = {key: value for key, value in document.items() if key in settings_by_key()}
    errors = _faults(document, _known(), "")
    stated = document.get("kubernetesVersion")
    if isinstance(stated, str) and stated not in SUPPORTED:
        errors.append(not_supported("kubernetesVersion", stated, SUPPORTED))
    if not errors:
        core = msgspec.convert({key: value for key, value in document.items() if key not in of_systems}, _CoreBlocks)
        blocks = tuple(msgspec.convert(value, settings_by_key()[key]) for key, value in of_systems.items())
        changed = tuple(block for block in blocks if block != type(block)())
        kubernetes = None if core.kubernetes_version is None else named_version(core.kubernetes_version)
        return Configuration(core.scheduler, core.nodes, changed, kubernetes)
    raise BadConfiguration(errors)


@cache
def settings_by_key() -> dict[str, type[Block]]:
    """The settings of the systems, by their keys in the document."""
    found = ((system.name, system.settings()) for system in systems())
    return {settings_key(name): block for name, block in found if block is not None}


def _known() -> dict[str, Any]:
    return _fields_of(_CoreBlocks) | settings_by_key()


def _fields_of(block: type[msgspec.Struct]) -> dict[str, Any]:
    return {info.encode_name: info.type for info in msgspec.structs.fields(block)}


def _invalid(error: msgspec.ValidationError, path: str) -> FieldError:
    message, _, inside = str(error).partition(" - at `$")
    here = (path + inside.rstrip("`")).lstrip(".")
    return FieldError(here or "document", "FieldValueInvalid", message)


def _faults(document: dict[str, Any], known: dict[str, Any], path: str) -> list[FieldError]:
    """All unknown keys and invalid values at once; msgspec alone would stop at the first."""
    errors = []
    for key, value in document.items():
        here = f"{path}.{key}" if path else key
        if key not in known:
            errors.append(
                FieldError(here, "FieldValueForbidden", f"unknown field; known here: {', '.join(sorted(known))}")
            )
        elif isinstance(value, dict) and isinstance(known[key], type) and issubclass(known[key], Block):
            errors += _faults(value, _fields_of(known[key]), here)
        else:
            try:
                msgspec.convert(value, known[key])
            except msgspec.ValidationError as error:
                errors.append(_invalid(error, here))
    return errors
