"""The whole control plane in one process on a virtual clock: scenarios, explanations, plans. The components are the
live ones; no rule of scheduling, admission or placement is implemented here."""
