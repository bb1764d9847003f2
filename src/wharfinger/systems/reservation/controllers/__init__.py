"""Controllers of reservations: their status and end, sets of them, and the migration of pods through them."""
