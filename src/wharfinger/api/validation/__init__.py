"""Validation of documents with the messages of Kubernetes: a list of all faults, each a `FieldError`.

`object_faults(kind, document, old)` checks metadata and then the rules of the kind. Types are checked first, so that
rules see well-formed documents only.
"""

from wharfinger.api.validation.metadata import metadata_faults, object_faults

__all__ = ["metadata_faults", "object_faults"]
