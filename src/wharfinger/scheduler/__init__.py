"""The live scheduler: a pure scheduling state (events in, instructions out) and an executor, over the client."""
