"""Columns of `kubectl get` for built-in kinds, as in pkg/printers/internalversion/printers.go.

Cells are computed from documents that passed validation. Name comes first unless the columns of a kind include it.
"""
