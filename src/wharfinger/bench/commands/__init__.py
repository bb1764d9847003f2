"""The benchmarks: a module `foo.py` with a click command named `command` is `wharf bench foo`."""
