"""Putting Wharfinger onto a cluster and taking it away again: what there is to install (`components`), the manifests of it
(`manifests`, `roles`: pure), and what the cluster has already (`cluster`)."""
