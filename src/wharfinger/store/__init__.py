"""Documents with Kubernetes semantics: resource versions, watches, selectors, finalizers, field ownership, subresources.

One store with two back ends: memory for simulation, SQLite for the embedded API server. The admission chain is a
parameter, and the store does not know HTTP.
"""

from wharfinger.store.chain import Chain, RemoteMutator, RemoteReviewer
from wharfinger.store.collection import Limits
from wharfinger.store.objects import Listing, StoredObject, StoreEvent, Written
from wharfinger.store.store import Store
from wharfinger.store.watch import Watch

__all__ = [
    "Chain",
    "Limits",
    "Listing",
    "RemoteMutator",
    "RemoteReviewer",
    "Store",
    "StoreEvent",
    "StoredObject",
    "Watch",
    "Written",
]
