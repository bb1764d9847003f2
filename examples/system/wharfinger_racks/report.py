"""A table of the racks in `wharf simulate`."""

from wharfinger.contributions import ReportSection, SystemReport
from wharfinger_racks.kinds import RACKS, row


class RackReport(SystemReport):
    kinds = (RACKS,)

    def sections(self, objects):
        rows = [row(document) for document in objects if document.get("kind") == RACKS.kind]
        return [ReportSection("Racks", ("rack", "closed", "nodes"), rows)]
