"""The records of devices: which ComputeResources a pod got, written by its scheduler, and which device ids, written by the
device agent of its node. Whoever may publish the devices of a node is its device agent."""

from __future__ import annotations

from wharfinger.admission.scheduler_records import NodeRight, SchedulerRecord
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES
from wharfinger.systems.resource_class.rules.compute_resources import DEVICE_IDS, RECORD, RECORD_FIELD

RECORDS = (
    SchedulerRecord(RECORD, field=RECORD_FIELD),
    SchedulerRecord(DEVICE_IDS, written_by=NodeRight(NODE_COMPUTE_RESOURCES.group, NODE_COMPUTE_RESOURCES.plural)),
)
