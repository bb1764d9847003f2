"""The HTTP protocol shared by the API server and the webhook server. It does not interpret requests."""
