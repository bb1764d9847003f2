"""Columns of `kubectl get` for Kubernetes' own kinds, as pkg/printers/internalversion/printers.go shows them.

Cells are computed from documents that passed validation. Name comes first unless a kind lists it itself.
"""
