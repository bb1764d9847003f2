"""The scheduling cycle over cluster tables and pod shapes, and preemption. Columnar, incremental, deterministic; no I/O."""
