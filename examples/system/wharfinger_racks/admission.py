"""Admission: a pod can only select a rack that exists."""

from wharfinger.admission.request import PASS, PodReviewer
from wharfinger_racks.kinds import LABEL, RACKS


class RackReviewer(PodReviewer):
    def __init__(self, objects):
        self._objects = objects

    def review(self, request):
        selector = ((request.object or {}).get("spec") or {}).get("nodeSelector") or {}
        rack = selector.get(LABEL)
        if request.operation != "CREATE" or rack is None or self._objects.peek(RACKS, rack) is not None:
            return PASS
        return request.refused(f'there is no rack "{rack}"')
