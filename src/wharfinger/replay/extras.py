"""What the commands of this package need beyond the base installation."""

from __future__ import annotations

from importlib.util import find_spec

from wharfinger.simulate.inputs import BadInput

_EXTRA = {"polars": "replay", "altair": "replay", "vl_convert": "replay", "distributed": "dask"}


def require_extra(*modules: str) -> None:
    """Raises BadInput, with what to install, unless all modules are there."""
    lacking = sorted({_EXTRA[module] for module in modules if find_spec(module) is None})
    if lacking:
        raise BadInput([f"this needs `pip install 'wharfinger[{','.join(lacking)}]'`"])
