"""Stock admission: one file for each admission plugin, each a pure function from a `Request` to a `Review`.

Nothing here does I/O. The caller (the store in process, the webhook server on a real cluster) supplies the objects that a
plugin reads and applies its review.
"""
