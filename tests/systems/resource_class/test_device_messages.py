"""Messages of the device-plugin API on the wire: the bytes that protobuf libraries make, unknown fields, and nonsense."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.systems.resource_class.device_agent import api
from wharfinger.systems.resource_class.device_agent.protobuf import BadMessage, decode, encode

KNOWN = [
    (api.RegisterRequest("v1beta1", "a.sock", "x.y/z"), b"\n\x07v1beta1\x12\x06a.sock\x1a\x05x.y/z"),
    (api.DevicePluginOptions(True, False), b"\x08\x01"),
    (api.Device("d", "Healthy", api.TopologyInfo((api.NumaNode(1),))), b"\n\x01d\x12\x07Healthy\x1a\x04\n\x02\x08\x01"),
    (api.Device("d", properties={"a": "b"}), b"\n\x01d\x8a\xf1\x04\x06\n\x01a\x12\x01b"),
    (api.NumaNode(-1), b"\x08" + b"\xff" * 9 + b"\x01"),
    (api.ContainerAllocateRequest(("a", "")), b"\n\x01a\n\x00"),
    (api.Empty(), b""),
]


@pytest.mark.parametrize(("message", "data"), KNOWN)
def test_messages_have_the_bytes_of_protocol_buffers(message: object, data: bytes) -> None:
    assert encode(message) == data
    assert decode(data, type(message)) == message


def test_unknown_fields_are_skipped() -> None:
    more = b"\x98\x06\x05" + b"\xa2\x06\x03abc" + b"\xad\x06\x00\x00\x00\x00" + b"\xb1\x06" + b"\x00" * 8
    assert decode(more + b"\n\x01d" + more, api.Device) == api.Device("d")


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a", b"\x0a\x05ab", b"\x0a\x01\xff", b"\x08\x01", b"\x00\x01", b"\x0c", b"\x80" * 12]
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(data, api.Device)


TEXT = st.text(max_size=20)
DEVICES = st.builds(
    api.Device,
    TEXT,
    TEXT,
    st.none()
    | st.builds(api.TopologyInfo, st.lists(st.builds(api.NumaNode, st.integers(-(2**63), 2**63 - 1))).map(tuple)),
    st.dictionaries(TEXT, TEXT),
)


@given(st.builds(api.ListAndWatchResponse, st.lists(DEVICES).map(tuple)))
def test_what_is_written_is_read_back(message: api.ListAndWatchResponse) -> None:
    assert decode(encode(message), api.ListAndWatchResponse) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode(data, api.ListAndWatchResponse)
