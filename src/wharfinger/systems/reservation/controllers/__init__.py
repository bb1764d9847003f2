"""Controllers for reservations: status and expiry, reservation sets, pod migration, and reserved quota."""
