"""The admission webhooks for a real API server: the reviewers of the core and of the systems behind HTTPS.

Handlers collect what a reviewer needs and are the extension point for systems. The server decodes AdmissionReviews, asks the
handlers that a request concerns, and denies what cannot be decided.
"""
