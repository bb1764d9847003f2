"""The kubelet's device plugin API v1beta1: message classes and service names.

`Device.properties` is our addition. Its field number is one that unmodified plugins never send and that an unmodified kubelet
skips.
"""

from __future__ import annotations

from wharfinger.api.protobuf import message_classes

VERSION = "v1beta1"
HEALTHY = "Healthy"
KUBELET_SOCKET = "kubelet.sock"
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"

_CLASSES = message_classes(
    VERSION,
    {
        "Empty": {},
        "DevicePluginOptions": {
            "pre_start_required": (1, "bool"),
            "get_preferred_allocation_available": (2, "bool"),
        },
        "RegisterRequest": {
            "version": (1, "string"),
            "endpoint": (2, "string"),
            "resource_name": (3, "string"),
            "options": (4, "DevicePluginOptions"),
        },
        "NumaNode": {"id": (1, "int64")},
        "TopologyInfo": {"nodes": (1, "repeated NumaNode")},
        "Device": {
            "id": (1, "string"),
            "health": (2, "string"),
            "topology": (3, "TopologyInfo"),
            "properties": (10001, "map<string, string>"),
        },
        "ListAndWatchResponse": {"devices": (1, "repeated Device")},
        "ContainerPreferredAllocationRequest": {
            "available": (1, "repeated string"),
            "must_include": (2, "repeated string"),
            "size": (3, "int64"),
        },
        "PreferredAllocationRequest": {"containers": (1, "repeated ContainerPreferredAllocationRequest")},
        "ContainerPreferredAllocationResponse": {"ids": (1, "repeated string")},
        "PreferredAllocationResponse": {"containers": (1, "repeated ContainerPreferredAllocationResponse")},
        "ContainerAllocateRequest": {"ids": (1, "repeated string")},
        "AllocateRequest": {"containers": (1, "repeated ContainerAllocateRequest")},
        "Mount": {"container_path": (1, "string"), "host_path": (2, "string"), "read_only": (3, "bool")},
        "DeviceSpec": {"container_path": (1, "string"), "host_path": (2, "string"), "permissions": (3, "string")},
        "CDIDevice": {"name": (1, "string")},
        "ContainerAllocateResponse": {
            "envs": (1, "map<string, string>"),
            "mounts": (2, "repeated Mount"),
            "devices": (3, "repeated DeviceSpec"),
            "annotations": (4, "map<string, string>"),
            "cdi_devices": (5, "repeated CDIDevice"),
        },
        "AllocateResponse": {"containers": (1, "repeated ContainerAllocateResponse")},
        "PreStartContainerRequest": {"ids": (1, "repeated string")},
    },
)

Empty = _CLASSES["Empty"]
DevicePluginOptions = _CLASSES["DevicePluginOptions"]
RegisterRequest = _CLASSES["RegisterRequest"]
NumaNode = _CLASSES["NumaNode"]
TopologyInfo = _CLASSES["TopologyInfo"]
Device = _CLASSES["Device"]
ListAndWatchResponse = _CLASSES["ListAndWatchResponse"]
ContainerPreferredAllocationRequest = _CLASSES["ContainerPreferredAllocationRequest"]
PreferredAllocationRequest = _CLASSES["PreferredAllocationRequest"]
ContainerPreferredAllocationResponse = _CLASSES["ContainerPreferredAllocationResponse"]
PreferredAllocationResponse = _CLASSES["PreferredAllocationResponse"]
ContainerAllocateRequest = _CLASSES["ContainerAllocateRequest"]
AllocateRequest = _CLASSES["AllocateRequest"]
ContainerAllocateResponse = _CLASSES["ContainerAllocateResponse"]
AllocateResponse = _CLASSES["AllocateResponse"]
PreStartContainerRequest = _CLASSES["PreStartContainerRequest"]
