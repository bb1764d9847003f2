"""Defaulting: what an API server fills in when a document leaves it out, as pkg/apis/*/v1/defaults.go does.

Defaulting runs before validation, so it bears documents of any shape: it walks only what has the right type and leaves
the rest for validation to refuse. Defaulting twice changes nothing.
"""
