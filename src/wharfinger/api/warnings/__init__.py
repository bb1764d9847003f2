"""What is valid and yet probably a mistake, as a Kubernetes API server warns about it.

`Kind.warn` is called for objects that passed validation; after upstream's registry strategies (WarningsOnCreate and
WarningsOnUpdate).
"""
