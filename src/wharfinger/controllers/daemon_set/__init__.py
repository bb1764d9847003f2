"""DaemonSets: one pod on every eligible node. `rules` decides, `controller` does the I/O."""
