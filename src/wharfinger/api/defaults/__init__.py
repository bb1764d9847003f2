"""Defaulting: the values of absent fields, as in pkg/apis/*/v1/defaults.go.

Defaulting runs before validation, so it tolerates malformed documents: values of the wrong type are left to validation.
It is idempotent.
"""
