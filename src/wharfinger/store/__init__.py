"""Documents with Kubernetes semantics: versions, watches, selectors, finalizers, ownership, subresources.

One store, two back ends: in memory for simulation, SQLite for the embedded API server. Takes the admission chain as a
parameter and knows no HTTP.
"""
