"""Placement decisions as pure functions of clusters, scores, existing decisions and the time.

`fleet.Fleet` holds the cluster data in columns; `pipeline.schedule` filters, scores and selects; `groups` and `pages`
lay the selection out as PlacementDecisions. Nothing here reads the clock or calls an API server.
"""
