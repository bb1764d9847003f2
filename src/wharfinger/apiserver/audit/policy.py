"""Audit policies (`audit.k8s.io/v1` Policy): the level at which a request is recorded. The first rule that matches decides.

As in kube-apiserver, except that an unknown field is an error here, not a warning in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from wharfinger.admission.request import User
from wharfinger.api import names
from wharfinger.api.fields import FieldError, invalid, not_supported, required
from wharfinger.api.registry import Document
from wharfinger.api.yaml_reader import BadYaml, read
from wharfinger.apiserver.request_info import RequestInfo

API_VERSION = "audit.k8s.io/v1"
RECEIVED, STARTED, COMPLETE, PANIC = "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"
STAGES = (RECEIVED, STARTED, COMPLETE, PANIC)
_KNOWN_ANSWERS = 10_000  # decisions to cache


class BadPolicyFile(Exception):
    """The policy cannot be used; the message names the file, the line, the field and the cause."""


class AuditLevel(IntEnum):
    """How much of a request is recorded."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


_LEVELS = {
    "None": AuditLevel.NONE,
    "Metadata": AuditLevel.METADATA,
    "Request": AuditLevel.REQUEST,
    "RequestResponse": AuditLevel.REQUEST_RESPONSE,
}
LEVEL_NAMES = {level: name for name, level in _LEVELS.items()}


@dataclass(frozen=True, slots=True)
class AuditDecision:
    """What is recorded of a request."""

    level: AuditLevel
    omitted: frozenset[str] = frozenset()  # stages
    omit_managed_fields: bool = False


_NOTHING = AuditDecision(AuditLevel.NONE)
_Texts = tuple[str, ...]


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class AuditedResources(_Strict, frozen=True):
    """Resources of one group; `*` is every group. Without `resources`, all of them."""

    group: str = ""
    resources: _Texts = ()
    resource_names: _Texts = ()

    def match(self, info: RequestInfo) -> bool:
        if self.group not in (info.group, "*"):
            return False
        if not self.resources:
            return True
        if self.resource_names and info.name not in self.resource_names:
            return False
        return any(_resource_matches(pattern, info.plural, info.subresource) for pattern in self.resources)


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    whole = f"{plural}/{subresource}" if subresource else plural
    if pattern in (whole, "*", f"{plural}/*"):
        return True
    return bool(subresource) and pattern == f"*/{subresource}"


class AuditRule(_Strict, frozen=True):
    level: str = ""
    users: _Texts = ()
    user_groups: _Texts = ()
    verbs: _Texts = ()
    resources: tuple[AuditedResources, ...] = ()
    namespaces: _Texts = ()
    non_resource_urls: _Texts = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: _Texts = ()
    omit_managed_fields: bool | None = None

    def match(self, user: User | None, verb: str, info: RequestInfo | None, path: str) -> bool:
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.user_groups and (user is None or not set(user.groups) & set(self.user_groups)):
            return False
        if self.verbs and verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if info is None or (self.namespaces and info.namespace not in self.namespaces):
                return False
            return not self.resources or any(each.match(info) for each in self.resources)
        if self.non_resource_urls:
            return info is None and any(_path_matches(path, pattern) for pattern in self.non_resource_urls)
        return True


def _path_matches(path: str, pattern: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


class AuditPolicyFile(_Strict, frozen=True):
    api_version: str
    kind: str
    rules: tuple[AuditRule, ...] = ()
    omit_stages: _Texts = ()
    omit_managed_fields: bool = False
    metadata: dict[str, Any] = {}

    def faults(self) -> Iterator[FieldError]:
        yield from _stage_faults(self.omit_stages, "omitStages")
        if not self.rules:
            yield required("rules", "a policy without rules records nothing")
        for index, rule in enumerate(self.rules):
            yield from _rule_faults(rule, f"rules[{index}]")


def _rule_faults(rule: AuditRule, path: str) -> Iterator[FieldError]:
    if not rule.level:
        yield required(f"{path}.level", "")
    elif rule.level not in _LEVELS:
        yield not_supported(f"{path}.level", rule.level, tuple(_LEVELS))
    for index, url in enumerate(rule.non_resource_urls):
        here = f"{path}.nonResourceURLs[{index}]"
        if url == "*":
            continue
        if not url.startswith("/"):
            yield invalid(here, url, "non-resource URL rules must begin with a '/' character")
        if "*" in url[:-1]:
            yield invalid(here, url, "non-resource URL wildcards '*' must be the final character of the rule")
    for index, each in enumerate(rule.resources):
        here = f"{path}.resources[{index}]"
        if each.group not in ("", "*") and (faults := names.dns_subdomain(each.group)):
            yield invalid(f"{here}.group", each.group, ",".join(faults))
        if each.resource_names and not each.resources:
            detail = "using resourceNames requires at least one resource"
            yield invalid(f"{here}.resourceNames", list(each.resource_names), detail)
    yield from _stage_faults(rule.omit_stages, f"{path}.omitStages")
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        detail = "rules cannot apply to both regular resources and non-resource URLs"
        yield invalid(f"{path}.nonResourceURLs", list(rule.non_resource_urls), detail)


def _stage_faults(stages: Iterable[str], path: str) -> Iterator[FieldError]:
    for index, stage in enumerate(stages):
        if stage not in STAGES:
            yield invalid(f"{path}[{index}]", stage, f"allowed stages are {','.join(STAGES)}")


class AuditPolicy:
    """The rules, ready for use. Answers are cached."""

    def __init__(self, policy: AuditPolicyFile) -> None:
        self._policy = policy
        everywhere = frozenset(policy.omit_stages)
        self._decisions = [
            AuditDecision(
                _LEVELS[rule.level],
                everywhere | frozenset(rule.omit_stages),
                policy.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields,
            )
            for rule in policy.rules
        ]
        self._names = any(each.resource_names for rule in policy.rules for each in rule.resources)
        self._answers: dict[tuple[Any, ...], AuditDecision] = {}

    def decide(self, user: User | None, verb: str, info: RequestInfo | None, path: str) -> AuditDecision:
        who = (user.name, user.groups) if user is not None else None
        if info is None:
            key: tuple[Any, ...] = (who, verb, path)
        else:
            name = info.name if self._names else ""
            key = (who, verb, info.group, info.plural, info.subresource, info.namespace, name)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _KNOWN_ANSWERS:
                self._answers.clear()
            found = self._answers[key] = self._decide(user, verb, info, path)
        return found

    def _decide(self, user: User | None, verb: str, info: RequestInfo | None, path: str) -> AuditDecision:
        for rule, decision in zip(self._policy.rules, self._decisions):
            if rule.match(user, verb, info, path):
                return decision
        return _NOTHING


def read_policy(text: str, file: str) -> AuditPolicy:
    """Raises BadPolicyFile."""
    try:
        reading = read(text, with_lines=True)
    except BadYaml as error:
        raise BadPolicyFile(f"{file}:{error.line}: {error}") from None
    if reading.faults:
        line, path, message = reading.faults[0]
        raise BadPolicyFile(f"{file}:{line}: {path + ': ' if path else ''}{message}")
    document = reading.value
    if not isinstance(document, dict):
        raise BadPolicyFile(f"{file}: an audit policy is a mapping with apiVersion, kind and rules")
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, "Policy"):
        raise BadPolicyFile(f"{file}: want apiVersion {API_VERSION} and kind Policy")
    try:
        policy = msgspec.convert(document, AuditPolicyFile)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = where.removesuffix("`").removeprefix(".")
        field = _unknown_field(message)
        whole = f"{path}.{field}" if path and field else path or field
        raise BadPolicyFile(_located(file, reading.lines, whole, message)) from None
    for fault in policy.faults():
        raise BadPolicyFile(_located(file, reading.lines, fault.path, fault.message))
    return AuditPolicy(policy)


def _unknown_field(message: str) -> str:
    return message.rpartition("unknown field `")[2].removesuffix("`") if "unknown field `" in message else ""


def _located(file: str, lines: dict[str, int], path: str, message: str) -> str:
    """The message with the line of the field, or of the nearest field around it that is in the file."""
    nearest = path
    while nearest and nearest not in lines:
        nearest = nearest[: max(nearest.rfind("."), nearest.rfind("["), 0)]
    return f"{file}:{lines.get(nearest, 1)}: {path}: {message}" if path else f"{file}: {message}"


def load_policy(path: Path) -> AuditPolicy:
    """Raises BadPolicyFile."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPolicyFile(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return read_policy(text, str(path))


def default_policy(components: Iterable[str]) -> AuditPolicy:
    """The metadata of every request, without health checks, events, leases, and what the components read."""
    rules: list[Document] = [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics", "/openapi*"]},
        {"level": "None", "verbs": ["get", "list", "watch"], "userGroups": ["system:nodes"]},
        {"level": "None", "verbs": ["get", "list", "watch"], "users": list(components)},
        {
            "level": "None",
            "resources": [
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        {"level": "Metadata"},
    ]
    document = {"apiVersion": API_VERSION, "kind": "Policy", "omitStages": [RECEIVED], "rules": rules}
    return AuditPolicy(msgspec.convert(document, AuditPolicyFile))
