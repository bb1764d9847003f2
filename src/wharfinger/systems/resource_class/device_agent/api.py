"""The kubelet's device plugin API v1beta1: message classes and service names.

`Device.properties` is our addition. Its field number is one that unmodified plugins never send and that an unmodified kubelet
skips.
"""

from __future__ import annotations

from wharfinger.api.protobuf import MessageClasses

VERSION = "v1beta1"
HEALTHY = "Healthy"
KUBELET_SOCKET = "kubelet.sock"
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"

_CLASSES = MessageClasses(
    VERSION,
    {
        "Empty": "",
        "DevicePluginOptions": "bool pre_start_required = 1; bool get_preferred_allocation_available = 2",
        "RegisterRequest": """
            string version = 1; string endpoint = 2; string resource_name = 3; DevicePluginOptions options = 4
        """,
        "NumaNode": "int64 id = 1",
        "TopologyInfo": "repeated NumaNode nodes = 1",
        "Device": """
            string id = 1; string health = 2; TopologyInfo topology = 3; map<string, string> properties = 10001
        """,
        "ListAndWatchResponse": "repeated Device devices = 1",
        "ContainerPreferredAllocationRequest": """
            repeated string available = 1; repeated string must_include = 2; int64 size = 3
        """,
        "PreferredAllocationRequest": "repeated ContainerPreferredAllocationRequest containers = 1",
        "ContainerPreferredAllocationResponse": "repeated string ids = 1",
        "PreferredAllocationResponse": "repeated ContainerPreferredAllocationResponse containers = 1",
        "ContainerAllocateRequest": "repeated string ids = 1",
        "AllocateRequest": "repeated ContainerAllocateRequest containers = 1",
        "Mount": "string container_path = 1; string host_path = 2; bool read_only = 3",
        "DeviceSpec": "string container_path = 1; string host_path = 2; string permissions = 3",
        "CDIDevice": "string name = 1",
        "ContainerAllocateResponse": """
            map<string, string> envs = 1; repeated Mount mounts = 2; repeated DeviceSpec devices = 3;
            map<string, string> annotations = 4; repeated CDIDevice cdi_devices = 5
        """,
        "AllocateResponse": "repeated ContainerAllocateResponse containers = 1",
        "PreStartContainerRequest": "repeated string ids = 1",
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
