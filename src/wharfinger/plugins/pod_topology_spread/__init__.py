"""PodTopologySpread: the plugin, what it counts, filtering by hard constraints and scoring by soft ones."""
