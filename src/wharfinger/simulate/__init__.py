"""The whole control plane in one process on a virtual clock: scenarios, explanations, plans."""
