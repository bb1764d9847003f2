"""The volume plugins: VolumeBinding, VolumeRestrictions, VolumeZone and NodeVolumeLimits.

They share one catalogue of claims, volumes and classes. `rules` and `migration` are pure functions over single objects.
"""
