"""Names, sizes and lists in the kinds of dynamic resource allocation, with the words of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, duplicate, invalid, required, too_long, too_many
from wharfinger.api.names import dns_label, dns_subdomain, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults

MAX_DRIVER = 63
MAX_POOL = 253
MAX_ID = 32

_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_C_IDENTIFIER_MESSAGE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_CASELESS = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*")
_CASELESS_MESSAGE = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'Example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Faults = Iterator[FieldError]
ItemRules = Callable[[Any, str], Iterable[FieldError]]


class DeclaredError(FieldError):
    """A fault of a rule that is declared in the Go type."""

    __slots__ = ()


def declared(faults: Iterable[FieldError]) -> Faults:
    for fault in faults:
        yield DeclaredError(fault.path, fault.reason, fault.message)


def ordered(faults: Iterable[FieldError]) -> list[FieldError]:
    """Faults of declared rules after all others."""
    return sorted(faults, key=lambda fault: isinstance(fault, DeclaredError))


def list_faults(items: Sequence[Any], limit: int, rules: ItemRules, path: str, *, declared_size: bool = True) -> Faults:
    """The size of a list and, unless it is too large, its items."""
    if 0 <= limit < len(items):
        size = [too_many(path, len(items), limit)]
        yield from declared(size) if declared_size else size
        return
    for index, item in enumerate(items):
        yield from rules(item, f"{path}[{index}]")


def set_faults(
    items: Sequence[Any],
    limit: int,
    rules: ItemRules,
    key: Callable[[Any], Any],
    path: str,
    *,
    declares: bool = True,
    order: Sequence[str] = (),
) -> Faults:
    """`list_faults`, and items with a key that an item before them has.

    A rule that Kubernetes `declares` shows the whole item, whose fields are printed in `order`.
    """
    yield from list_faults(items, limit, rules, path, declared_size=declares)
    if 0 <= limit < len(items):
        return
    seen: set[Any] = set()
    for index, item in enumerate(items):
        own = key(item)
        if own in seen:
            shown = in_order(item, order) if declares and isinstance(item, dict) else own
            fault = [duplicate(f"{path}[{index}]", shown)]
            yield from declared(fault) if declares else fault
        seen.add(own)


def in_order(value: Any, order: Sequence[str]) -> Any:
    """A value with the members of objects in the order of Go's fields, as messages print it."""
    if isinstance(value, dict):
        ranked = sorted(value, key=lambda name: order.index(name) if name in order else len(order))
        return {name: in_order(value[name], order) for name in ranked}
    return [in_order(item, order) for item in value] if isinstance(value, list) else value


def map_faults(
    items: Mapping[str, Any],
    limit: int,
    longest_key: int,
    key_rules: ItemRules,
    rules: ItemRules,
    path: str,
) -> Faults:
    if 0 <= limit < len(items):
        yield too_many(path, len(items), limit)
        return
    for key, item in items.items():
        yield from key_rules(key, path)
        yield from rules(item, f"{path}[{_shortened(key, longest_key)}]")


def _shortened(text: str, longest: int) -> str:
    longest = max(longest, 16)
    if len(text) <= longest:
        return text
    kept = longest - 3
    return f"{text[: (kept + 1) // 2]}...{text[len(text) - kept // 2 :]}"


def label_name_faults(name: Any, path: str) -> Faults:
    """A DNS label: names of requests, devices, counters."""
    for fault in dns_label(name or ""):
        yield invalid(path, name or "", fault.replace(" bytes", " characters"))


def declared_subdomain(name: str) -> list[str]:
    """`dns_subdomain` in the words of declared rules, which count bytes."""
    return [
        fault.replace(" characters", " bytes") if "no more than" in fault else fault for fault in dns_subdomain(name)
    ]


def declared_label_faults(name: Any, path: str) -> Faults:
    """A DNS label that must be given."""
    yield from declared([required(path)] if not name else name_faults(dns_label, name, path))


def key_faults(name: Any, path: str) -> Faults:
    """A label key, such as the type of a condition."""
    yield from name_faults(qualified_name, name or "", path)


def driver_faults(name: str | None, path: str) -> Faults:
    if not name:
        yield required(path)
        return
    if len(name.encode()) > MAX_DRIVER:
        yield too_long(path, MAX_DRIVER)
    for fault in dns_subdomain(name.lower()):
        yield invalid(path, name, fault)


def declared_driver_faults(name: str | None, path: str) -> Faults:
    """A driver where the rules are declared."""
    if not name:
        yield from declared([required(path)])
        return
    faults = [invalid(path, name, fault) for fault in _caseless_faults(name)]
    if len(name) > MAX_DRIVER:
        long = f"Too long: may not be more than {MAX_DRIVER} characters"
        faults.append(FieldError(path, "FieldValueTooLong", long))
    yield from declared(faults)


def _caseless_faults(name: str) -> list[str]:
    faults = ["must be no more than 253 bytes"] if len(name) > MAX_POOL else []
    return faults if _CASELESS.fullmatch(name) else [*faults, _CASELESS_MESSAGE]


def pool_faults(name: str | None, path: str) -> Faults:
    if not name:
        yield required(path)
        return
    if len(name.encode()) > MAX_POOL:
        yield too_long(path, MAX_POOL)
    for part in name.split("/"):
        yield from name_faults(dns_subdomain, part, path)


def declared_pool_faults(name: str | None, path: str) -> Faults:
    if not name:
        yield from declared([required(path)])
        return
    faults = [too_long(path, MAX_POOL)] if len(name.encode()) > MAX_POOL else []
    for index, part in enumerate(name.split("/")):
        if not part:
            faults.append(invalid(path, name, f"segment {index}: must not be empty"))
        faults += [invalid(path, part, f"segment {index}: {fault}") for fault in declared_subdomain(part) if part]
    yield from declared(faults)


def identifier_faults(name: str, path: str) -> Faults:
    if len(name.encode()) > MAX_ID:
        yield too_long(path, MAX_ID)
    if not _C_IDENTIFIER.fullmatch(name):
        yield invalid(path, name, _C_IDENTIFIER_MESSAGE)


def qualified_faults(name: str, path: str) -> Faults:
    """The name of an attribute or a capacity: an identifier, with or without a domain. As upstream, names with several
    slashes pass."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from identifier_faults(name, path)
    elif len(parts) == 2:
        domain, own = parts
        if not domain:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from driver_faults(domain, path)
        if not own:
            yield invalid(path, "", "the name must not be empty")
        else:
            yield from identifier_faults(own, path)


def declared_qualified_faults(name: str, path: str) -> Faults:
    """The name of an attribute with its domain, in a constraint."""
    faults: list[FieldError] = []
    parts = name.split("/")
    if len(parts) == 1:
        faults += identifier_faults(name, path)
    elif len(parts) == 2:
        domain, own = parts
        if not domain:
            faults.append(invalid(path, "", "prefix must not be empty"))
        else:
            faults += [too_long(path, MAX_DRIVER)] if len(domain.encode()) > MAX_DRIVER else []
            faults += [invalid(path, domain, f"prefix: {fault}") for fault in declared_subdomain(domain)]
        if not own:
            faults.append(invalid(path, "", "name must not be empty"))
        else:
            faults += identifier_faults(own, path)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        faults.append(invalid(path, name, detail))
    yield from declared(faults)


def declared_uuid_faults(text: Any, path: str) -> Faults:
    if text is not None and not _UUID.fullmatch(text):
        yield from declared([invalid(path, text, "must be a lowercase UUID in 8-4-4-4-12 format")])


def raw_faults(raw: Any, path: str, limit: int, *, stored: bool = False) -> Faults:
    """A document of a driver: a JSON object of limited size."""
    if raw is None:
        yield required(path)
    elif not stored and len(msgspec.json.encode(raw)) > limit:
        yield too_long(path, limit)
    elif not isinstance(raw, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def child_list(owner: Document, name: str) -> list[Any]:
    return owner.get(name) or []
