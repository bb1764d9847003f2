"""Typed read views: msgspec structs that hold only what decisions need of each kind. Never written back to a server.

`view(document, Pod)` and `decode(data, Pod)` make one. Wire names stay camelCase through renaming.
"""

from wharfinger.api.views.base import View, decode, strip_nulls, view
from wharfinger.api.views.meta import Condition, ObjectMeta, OwnerReference
from wharfinger.api.views.nodes import Node
from wharfinger.api.views.pods import Pod

__all__ = ["Condition", "Node", "ObjectMeta", "OwnerReference", "Pod", "View", "decode", "strip_nulls", "view"]
