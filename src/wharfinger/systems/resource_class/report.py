"""What reports tell about resource classes."""

from __future__ import annotations

from importlib.resources import files

from wharfinger.contributions import Sample, SystemReport


class ResourceClassReport(SystemReport):
    sample = Sample(files("wharfinger.systems.resource_class").joinpath("samples"), hints=("wharf classes",))
