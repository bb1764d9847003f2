"""What the controllers share: ownership, expectations, the order of scale-in, revisions. Reconcilers are not here."""
