"""Schemas: which fields a kind has, of which types, with which constraints, and how lists and maps of it merge.

`tree` has the one schema type, built from the OpenAPI definitions of Kubernetes (`definitions`) or from the schema of a
CustomResourceDefinition. `compiler` turns it into msgspec types, which check a correct document in C. The other modules
walk it, each for one purpose and with the wording that Kubernetes uses there: `type_errors` (validation of built-in
kinds), `decoding` (strict decoding of request bodies) and `structural` (CustomResourceDefinitions). Server-side apply
and strategic merge patches walk it in `wharfinger.store`. `models` and `crds` generate our own definitions from Python
types.
"""
