"""Jobs: pods that run to completion. `rules`, `indexes`, `policies` and `backoff` decide, `controller` does the I/O."""
