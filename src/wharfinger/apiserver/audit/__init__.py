"""The audit log: who asked for what, and what was answered, as `audit.k8s.io/v1` events in a file of JSON lines.

`policy` decides what is recorded of a request, `recording` collects it while the request is answered, and `log` writes it in a
thread of its own.
"""
