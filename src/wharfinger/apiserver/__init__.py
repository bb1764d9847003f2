"""The HTTPS front of the store: REST, watch, discovery, OpenAPI, authentication, authorization."""
