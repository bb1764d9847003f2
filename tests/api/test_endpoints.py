"""Which Endpoints and EndpointSlices are refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document
from wharfinger.api.validation import object_faults


def faults(plural: str, group: str, document: Document) -> list[str]:
    kind = registry().of_plural(group, plural)
    assert kind is not None and kind.default is not None
    document = {"metadata": {"name": "x", "namespace": "default"}, **document}
    kind.default(document)
    return [str(fault) for fault in object_faults(kind, document)]


@pytest.mark.parametrize(
    ("subset", "expected"),
    [
        ({}, "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
        (
            {"addresses": [{"ip": "127.0.0.1"}]},
            'subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": '
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            {"notReadyAddresses": [{"ip": "169.254.1.1"}]},
            'subsets[0].notReadyAddresses[0].ip: Invalid value: "169.254.1.1": '
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 0}]},
            "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}, {"name": "a", "port": 2}]},
            "subsets[0].ports[0].name: Required value",
        ),
        ({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}, ""),
    ],
)
def test_endpoints(subset: Document, expected: str) -> None:
    assert faults("endpoints", "", {"subsets": [subset]}) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"endpoints": [{"addresses": []}]},
            "endpoints[0].addresses: Required value: must contain at least 1 address",
        ),
        (
            {"endpoints": [{"addresses": ["2001:db8::1"]}]},
            'endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address',
        ),
        (
            {"endpoints": [{"addresses": ["foo"]}]},
            'endpoints[0].addresses[0]: Invalid value: "foo": '
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        ({"ports": [{"name": "a"}, {"name": "a"}]}, 'ports[1].name: Duplicate value: "a"'),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}]},
            'endpoints[0].hints.forZones[1].name: Duplicate value: "a"',
        ),
        ({"endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n"}], "ports": [{"port": 80}]}, ""),
    ],
)
def test_endpoint_slices(fields: dict[str, Any], expected: str) -> None:
    document = {"addressType": "IPv4", "endpoints": [], **fields}
    assert faults("endpointslices", "discovery.k8s.io", document) == ([expected] if expected else [])
