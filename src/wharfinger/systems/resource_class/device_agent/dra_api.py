"""The kubelet's API for DRA drivers: message classes and service names of the plugin registration and of DRAPlugin v1."""

from __future__ import annotations

from wharfinger.api.protobuf import MessageClasses

REGISTRATION_SERVICE = "pluginregistration.Registration"
DRA_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
PLUGIN_TYPE = "DRAPlugin"
SUPPORTED = "v1.DRAPlugin"

_REGISTRATION = MessageClasses(
    "pluginregistration",
    {
        "InfoRequest": "",
        "PluginInfo": "string type = 1; string name = 2; string endpoint = 3; repeated string supported_versions = 4",
        "RegistrationStatus": "bool plugin_registered = 1; string error = 2",
        "RegistrationStatusResponse": "",
    },
)
PluginInfo = _REGISTRATION["PluginInfo"]
RegistrationStatus = _REGISTRATION["RegistrationStatus"]
RegistrationStatusResponse = _REGISTRATION["RegistrationStatusResponse"]

# Maps of messages are written as their entries, which is the same on the wire.
_DRA = MessageClasses(
    "k8s.io.kubelet.pkg.apis.dra.v1",
    {
        "Claim": "string namespace = 1; string uid = 2; string name = 3",
        "ClaimsRequest": "repeated Claim claims = 1",
        "Device": """
            repeated string request_names = 1; string pool_name = 2; string device_name = 3;
            repeated string cdi_device_ids = 4; string share_id = 5
        """,
        "Prepared": "repeated Device devices = 1; string error = 2",
        "PreparedEntry": "string key = 1; Prepared value = 2",
        "NodePrepareResourcesResponse": "repeated PreparedEntry claims = 1",
        "Unprepared": "string error = 1",
        "UnpreparedEntry": "string key = 1; Unprepared value = 2",
        "NodeUnprepareResourcesResponse": "repeated UnpreparedEntry claims = 1",
    },
)
ClaimsRequest = _DRA["ClaimsRequest"]
Prepared = _DRA["Prepared"]
NodePrepareResourcesResponse = _DRA["NodePrepareResourcesResponse"]
Unprepared = _DRA["Unprepared"]
NodeUnprepareResourcesResponse = _DRA["NodeUnprepareResourcesResponse"]
