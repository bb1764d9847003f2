"""Documents with Kubernetes semantics: versions, watches, selectors, finalizers, ownership, subresources.

One store, two back ends: in memory for simulation, SQLite for the embedded API server. Takes the admission chain as a
parameter and knows no HTTP.
"""

from wharfinger.store.chain import Chain, RemoteMutator, RemoteReviewer
from wharfinger.store.collection import Limits
from wharfinger.store.objects import Listing, Stored, StoreEvent, Written
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
    "Stored",
    "Watch",
    "Written",
]
