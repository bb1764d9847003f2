"""The kind SchedulingPolicy. Objects are stored as sent; readers resolve the aliases."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError
from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Column, Document, Kind
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.kinds.validation import COMPONENTS, validate_policy
from wharfinger.systems.scheduling_policy.kinds.views import AFFINITY_KINDS, ALIASES, HARD, MODE_KEY, SOFT, aliased

DOCUMENT_GROUP = "extensions"
"""The API group of the design document, under which the embedded server serves the kind as well."""

_STRINGS = {"type": "array", "items": {"type": "string"}}
_NULLABLE = {"nullable": True}
"""An API server would drop a null here and leave an empty object, which allows everything; validation must see the
null."""


def schema(version: str) -> Document:
    """The structural schema. It declares every alias and preserves unknown fields for validation to refuse: a field
    that was silently dropped could turn a policy into one that allows nothing, or a pattern into one that allows
    everything."""
    spec = _object(
        "Which scheduling wishes pods may, must and do by default express. What is absent is not allowed.",
        {
            "required": _section("What pods must ask for; required things are allowed too.", _TREE),
            "allowed": _section("What pods may ask for; an empty list or map allows anything.", _TREE),
            "allowedAffinities": {**_TREE, "description": "Another spelling of allowed.affinities."},
            "default": _object("What is added to pods that do not ask for it.", _with_aliases(_DEFAULTS)),
        },
    )
    return _object(
        "Who may ask the scheduler for what. Pods may use a policy when their service account has the verb `use` on it.",
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {**spec, "x-kubernetes-preserve-unknown-fields": True},
            "status": _object("What was seen of the policy on a real cluster.", _STATUS),
        },
    )


def _object(description: str, properties: Document) -> Document:
    return {"type": "object", "description": description, "properties": properties}


def _open(description: str) -> Document:
    return {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}


def _with_aliases(properties: Document) -> Document:
    named = dict(properties)
    for name, alias in ALIASES.items():
        if name in properties:
            named[alias] = {**properties[name], "description": f"Another spelling of {name}."}
    return named


def _patterns(*names: str) -> Document:
    item = _object("An empty or absent list stands for anything.", dict.fromkeys(names, _STRINGS))
    return {"type": "array", "items": {**item, "x-kubernetes-preserve-unknown-fields": True}}


def _kind_of_affinity(name: str) -> Document:
    leaves: dict[str, Any] = {
        HARD: {**_open("Empty stands for all of it."), **_NULLABLE},
        SOFT: {"x-kubernetes-preserve-unknown-fields": True, **_NULLABLE},
    }
    if name == "nodeAffinities":
        term = {
            **_object(
                "One set of patterns.", {"matchExpressions": {**_patterns("keys", "operators", "values"), **_NULLABLE}}
            ),
            "x-kubernetes-preserve-unknown-fields": True,
        }
        leaves[HARD]["properties"] = {"nodeSelectorTerms": {"type": "array", "items": term, **_NULLABLE}}
    else:
        leaves[HARD] = leaves[SOFT]
    kind = _object("Empty stands for hard and soft.", leaves)
    return {**kind, "x-kubernetes-preserve-unknown-fields": True, **_NULLABLE}


_TREE: Document = {
    **_object(
        "Kinds of affinity; empty stands for all of them.", {name: _kind_of_affinity(name) for name in AFFINITY_KINDS}
    ),
    "x-kubernetes-preserve-unknown-fields": True,
}
_DEFAULTS: Document = {
    "schedulerName": {"type": "string", "description": "The scheduler of pods that name none."},
    "priorityClasseName": {"type": "string", "description": "The priority class of pods that name none."},
    "nodeSelector": {
        "type": "object",
        "description": "Added key by key where a pod lacks the key.",
        "additionalProperties": {"type": "string", **_NULLABLE},
    },
    "tolerations": {
        "type": "array",
        "description": "Added to pods that have none; `values` makes one toleration for each value.",
        "items": _open("A toleration."),
    },
    "affinity": _open("Added by kind and hardness where a pod has none."),
    "runtimeClassName": {"type": "string", "description": "The RuntimeClass of pods that name none."},
    "topologySpreadConstraints": {
        "type": "array",
        "description": "Added to pods that have none.",
        "items": _open("A topology spread constraint."),
    },
}


_STATUS: Document = {
    "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that is counted."},
    "violations": {
        "type": "integer",
        "format": "int64",
        "description": "Pods and templates that violated the policy since it changed, whether refused or not.",
    },
    "lastViolationTime": {"type": "string", "format": "date-time", "description": "When that was last counted."},
}


def _section(description: str, tree: Document) -> Document:
    properties = {
        "schedulerNames": {**_STRINGS, "description": "Scheduler names."},
        "priorityClasseNames": {**_STRINGS, "description": "Priority class names."},
        "nodeSelectors": {
            "type": "object",
            "description": "Node selector keys, each with its values; an empty list stands for any value.",
            "additionalProperties": {**_STRINGS, **_NULLABLE},
        },
        "tolerations": _patterns("keys", "operators", "values", "effects"),
        "affinities": tree,
        "runtimeClassNames": {**_STRINGS, "description": "RuntimeClass names."},
        "topologySpreadConstraints": _patterns("topologyKeys", "whenUnsatisfiable"),
    }
    return {**_object(description, _with_aliases(properties)), "x-kubernetes-preserve-unknown-fields": True}


def _components(section: str) -> Column:
    def cell(document: Document, now: float) -> str:
        spec = document.get("spec") or {}
        given = spec.get(section) or {}
        names = []
        for name in COMPONENTS:
            plural = name if section != "default" else _IN_DEFAULT.get(name, name)
            value = aliased(given, plural)
            if section == "allowed" and name == "affinities" and value is None:
                value = spec.get("allowedAffinities")
            if value is not None:
                names.append(f"{plural}=*" if not value and section == "allowed" else plural)
        return ",".join(names) or "<none>"

    # Without a path: real API servers cannot compute cells and would print the whole section.
    return Column(section.capitalize(), description=f"The components in `{section}`.", cell=cell)


_IN_DEFAULT = {
    "schedulerNames": "schedulerName",
    "priorityClasseNames": "priorityClasseName",
    "nodeSelectors": "nodeSelector",
    "affinities": "affinity",
    "runtimeClassNames": "runtimeClassName",
}


_MODE_PATH = "metadata.annotations." + MODE_KEY.replace(".", "\\.")


def _mode(document: Document, now: float) -> str:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(MODE_KEY) or "enforce")


_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _validate(document: Document, old: Document | None = None) -> list[FieldError]:
    """Also validates the last-applied annotation, since `kubectl apply` drops nulls before it sends an object."""
    faults = validate_policy(document, old)
    written = _written(document)
    if b"null" not in written or (old is not None and written == _written(old)):
        return faults
    try:
        applied = msgspec.json.decode(written)
    except msgspec.DecodeError:
        return faults  # not written by kubectl
    if not isinstance(applied, dict):
        return faults
    return faults + [fault for fault in validate_policy({"spec": applied.get("spec")}) if fault not in faults]


def _written(document: Document) -> bytes:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(_LAST_APPLIED) or "").encode()


KINDS = (
    Kind(
        SIGS,
        SCHEDULING_POLICIES.kind,
        SCHEDULING_POLICIES.plural,
        versions=(SCHEDULING_POLICIES.version,),
        namespaced=False,
        singular="schedulingpolicy",
        short_names=("schedpol",),
        columns=(
            Column("Mode", _MODE_PATH, description="audit: reports only.", cell=_mode),
            _components("required"),
            _components("allowed"),
            _components("default"),
            Column(
                "Violations",
                "status.violations",
                type="integer",
                description="Violations since the policy changed.",
                priority=1,
            ),
            AGE,
        ),
        status=True,
        validate=_validate,
        keeps_nulls=True,
        schema=schema,
        ours=True,
        alias_groups=(DOCUMENT_GROUP,),
    ),
)
