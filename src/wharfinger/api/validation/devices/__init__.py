"""Validation of the kinds of dynamic resource allocation, after pkg/apis/resource/validation of Kubernetes 1.37.

Expressions are compiled by admission, which also knows namespaces and permissions. Kubernetes reports rules that are
declared in the Go types after all others; `declared` marks them and `ordered` puts them there.
"""
