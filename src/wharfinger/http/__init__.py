"""How our servers speak HTTP: one protocol, shared by the API server and the webhook. What is answered is not decided here."""
