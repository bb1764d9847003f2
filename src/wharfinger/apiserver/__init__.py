"""The embedded API server: the HTTPS front of the store, with authentication, authorization, discovery, OpenAPI and watches.

A request goes through `app` (authentication, authorization, dispatch) to `resources` (the verbs) and from there to the store.
"""
