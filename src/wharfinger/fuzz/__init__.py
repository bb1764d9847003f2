"""Fault simulation: random histories of a simulated control plane, with faults, and invariants that are checked after
every step. The components are the live ones; what checks them shares no code with them."""
