"""Writes a plan of EndpointSlices, for the controller of Services and the one that mirrors Endpoints."""

from __future__ import annotations

from wharfinger.api.errors import ApiError, NotFound, is_terminating_namespace
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import ENDPOINT_SLICES
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client
from wharfinger.controllers.endpoints.informed import WrittenVersions
from wharfinger.controllers.endpoints.slices import SlicePlan


async def carry_out(client: Client, written: WrittenVersions, key: ObjectKey, owner: Document, plan: SlicePlan) -> None:
    """`owner` is the Service or the Endpoints; while it is being deleted, it gets no new slices."""
    if not owner["metadata"].get("deletionTimestamp"):
        for each in plan.create:
            try:
                written.wrote(key, await client.create(ENDPOINT_SLICES, each, key[0]))
            except ApiError as error:
                if is_terminating_namespace(error):
                    return
                raise
    for each in plan.update:
        written.wrote(key, await client.update(ENDPOINT_SLICES, each, key[0], name=each["metadata"]["name"]))
    for each in plan.delete:
        await delete_slice(client, each)


async def delete_slice(client: Client, document: Document) -> None:
    """It may be gone already."""
    try:
        await client.delete(ENDPOINT_SLICES, document["metadata"]["name"], document["metadata"]["namespace"])
    except NotFound:
        return
