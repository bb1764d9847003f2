"""Builds and checks a release: `python -m scripts.release`. See docs/internals/releases.md.

`build` makes the parts, `krew` the kubectl plugin, `changelog` the notes; `contents` and `checks` look at the result as a
user would get it.
"""
