"""Messages of the device plugin API on the wire: known bytes, unknown fields and malformed data."""

import contextlib
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.systems.resource_class.device_agent import api

KNOWN = [
    (
        api.RegisterRequest(version="v1beta1", endpoint="a.sock", resource_name="x.y/z"),
        b"\n\x07v1beta1\x12\x06a.sock\x1a\x05x.y/z",
    ),
    (api.DevicePluginOptions(pre_start_required=True), b"\x08\x01"),
    (
        api.Device(id="d", health="Healthy", topology=api.TopologyInfo(nodes=[api.NumaNode(id=1)])),
        b"\n\x01d\x12\x07Healthy\x1a\x04\n\x02\x08\x01",
    ),
    (api.Device(id="d", properties={"a": "b"}), b"\n\x01d\x8a\xf1\x04\x06\n\x01a\x12\x01b"),
    (api.NumaNode(id=-1), b"\x08" + b"\xff" * 9 + b"\x01"),
    (api.ContainerAllocateRequest(ids=["a", ""]), b"\n\x01a\n\x00"),
    (api.Empty(), b""),
]


@pytest.mark.parametrize(("message", "data"), KNOWN)
def test_field_numbers_and_types_are_those_of_the_api(message: Message, data: bytes) -> None:
    assert message.SerializeToString() == data
    assert type(message).FromString(data) == message


def test_unknown_fields_are_skipped() -> None:
    more = b"\x98\x06\x05" + b"\xa2\x06\x03abc" + b"\xad\x06\x00\x00\x00\x00" + b"\xb1\x06" + b"\x00" * 8
    assert api.Device.FromString(more + b"\n\x01d" + more).id == "d"


def test_a_field_with_another_wire_type_is_skipped() -> None:
    assert api.Device.FromString(b"\x08\x01").id == ""


@pytest.mark.parametrize("data", [b"\xff", b"\x0a", b"\x0a\x05ab", b"\x0a\x01\xff", b"\x00\x01", b"\x0c", b"\x80" * 12])
def test_malformed_data_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        api.Device.FromString(data)


TEXT = st.text(max_size=20)
NUMA_NODES = st.builds(api.NumaNode, id=st.integers(-(2**63), 2**63 - 1))
DEVICES = st.builds(
    api.Device,
    id=TEXT,
    health=TEXT,
    topology=st.none() | st.builds(api.TopologyInfo, nodes=st.lists(NUMA_NODES)),
    properties=st.dictionaries(TEXT, TEXT),
)


@given(st.builds(api.ListAndWatchResponse, devices=st.lists(DEVICES)))
def test_what_is_written_is_read_back(message: Any) -> None:
    assert api.ListAndWatchResponse.FromString(message.SerializeToString()) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        api.ListAndWatchResponse.FromString(data)
