"""Builds the image that `wharf install` runs, without Docker: `python -m scripts.image`.

Packages of Debian are unpacked without their scripts, so neither root nor a container runtime is needed. Everything that
depends on a version of Python or zlib (which wheels fit, bytecode, compression) is done by the image's own Python, so the
same packages give the same digest on every machine.
"""
