"""Which clusters: the decision of a Placement as a pure function of clusters, scores, decisions and the time.

`fleet.Fleet` holds what is known of clusters in columns, `pipeline.schedule` filters, scores and selects, `groups` and
`pages` lay the selection out as PlacementDecisions. Nothing here reads a clock or a server.
"""
