"""Validation of documents, as Kubernetes words it: one fault a `FieldError`, all faults at once.

`object_faults(kind, document, old)` is what a server asks: metadata, which is the same for all kinds, then the kind's own
rules. Documents come from users and may be of any shape: shapes are checked first, and rules only walk what passed.
"""

from wharfinger.api.validation.metadata import metadata_faults, object_faults

__all__ = ["metadata_faults", "object_faults"]
