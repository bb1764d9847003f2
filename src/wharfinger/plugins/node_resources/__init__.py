"""The plugins that compare requested with allocatable resources: NodeResourcesFit and NodeResourcesBalancedAllocation."""
