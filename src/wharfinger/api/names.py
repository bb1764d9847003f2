"""Names: what Kubernetes accepts as object names, label keys and label values, with its messages.

Each function returns the reasons why a text is invalid; an empty list means that it is valid.
"""

from __future__ import annotations

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def dns_label(text: str) -> list[str]:
    """Names of namespaces, services, units: at most 63 of `a-z0-9-`."""
    faults = [_too_long(63)] if len(text) > 63 else []
    if _LABEL.fullmatch(text):
        return faults
    return [*faults, "must not contain dots" if _SUBDOMAIN.fullmatch(text) else _LABEL_MESSAGE]


def dns_1035_label(text: str) -> list[str]:
    """Versions of API groups: a DNS label that starts with a letter."""
    faults = [_too_long(63)] if len(text) > 63 else []
    return faults if _LABEL_1035.fullmatch(text) else [*faults, _LABEL_1035_MESSAGE]


def dns_subdomain(text: str) -> list[str]:
    """Names of most objects: at most 253 of `a-z0-9-.`."""
    faults = ["must be no more than 253 characters"] if len(text) > 253 else []
    return faults if _SUBDOMAIN.fullmatch(text) else [*faults, _SUBDOMAIN_MESSAGE]


def path_segment(text: str) -> list[str]:
    """Names of RBAC objects, which may hold anything that fits in a URL path segment."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{char}'" for char in ("/", "%") if char in text]


def qualified_name(text: str) -> list[str]:
    """Label and annotation keys, taint keys, resource names: an optional DNS prefix, a slash, a name of at most 63."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [
            f"a qualified name {_QUALIFIED_MESSAGE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    faults = []
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        else:
            faults.extend(f"prefix part {fault}" for fault in dns_subdomain(prefix))
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > 63:
        faults.append(f"name part {_too_long(63)}")
    if not _QUALIFIED.fullmatch(name):
        faults.append(f"name part {_QUALIFIED_MESSAGE}")
    return faults


def label_value(text: str) -> list[str]:
    faults = [_too_long(63)] if len(text) > 63 else []
    return faults if not text or _QUALIFIED.fullmatch(text) else [*faults, _VALUE_MESSAGE]
