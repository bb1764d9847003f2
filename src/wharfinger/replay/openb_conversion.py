"""A trace of the `openb` form as one that the whole control plane can replay, with the times at which pods came and went."""

from __future__ import annotations

from wharfinger.replay.openb import OpenbTrace
from wharfinger.replay.openb_objects import device_class, node_objects, pod_objects
from wharfinger.replay.trace import NodePeriod, Trace, TracedObject, TracedPod, TraceMoment

AFTER_CLAIM = 0.001  # seconds


def converted(trace: OpenbTrace, name: str) -> Trace:
    start = TraceMoment(0.0)
    made = Trace(name, start.time, objects=[TracedObject(start, device_class())])
    for node in trace.nodes:
        document, *slices = node_objects(node)
        made.nodes.append(NodePeriod(node.name, document, start))
        made.objects += [TracedObject(start, each) for each in slices]
    for number, pod in enumerate(sorted(trace.pods, key=lambda each: each.created or 0)):
        created = float(pod.created or 0)
        *claims, document = pod_objects(pod)
        made.objects += [TracedObject(TraceMoment(created, number), each) for each in claims]
        traced = TracedPod(document, TraceMoment(created + AFTER_CLAIM, number))
        if pod.deleted is not None and pod.scheduled is not None:
            traced.run_time = float(pod.deleted - pod.scheduled)
        elif pod.deleted is not None:
            traced.departure = TraceMoment(float(pod.deleted))
        made.pods.append(traced)
    return made
