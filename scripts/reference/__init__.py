"""Writes the reference pages and the man pages from the code: `python -m scripts.reference`.

`commands` reads the `wharf` command, `kinds` the registry of kinds, and `metrics` and `messages` the source text; `pages`
and `man` write what these return. Nothing here runs in the product.
"""
