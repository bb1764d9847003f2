"""The kind Rack: its schema, validation and columns."""

from typing import Annotated

from wharfinger.api.registry import Column, Resource
from wharfinger.api.schema.models import Model, doc, model_kind

LABEL = "example.com/rack"
RACKS = Resource("example.com", "v1", "racks", "Rack", namespaced=False)


class RackSpec(Model):
    """Whether new pods may go to the rack."""

    closed: Annotated[bool, doc("Whether the nodes of the rack refuse new pods.")] = False


class RackStatus(Model):
    """What the controller found."""

    nodes: Annotated[int, doc("How many nodes have the label example.com/rack with the name of this rack.")] = 0


class RackModel(Model):
    """A group of nodes that can be closed for new pods."""

    spec: RackSpec
    status: RackStatus | None = None


def row(document):
    """A rack as a row of a table."""
    closed = (document.get("spec") or {}).get("closed", False)
    return document["metadata"]["name"], closed, (document.get("status") or {}).get("nodes", 0)


KINDS = (
    model_kind(
        RACKS,
        RackModel,
        columns=(
            Column("Closed", "spec.closed", type="boolean"),
            Column("Nodes", "status.nodes", type="integer"),
        ),
    ),
)
