"""Writes traces as tables that `wharfinger.replay.importing` reads again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from wharfinger.api.registry import Document
from wharfinger.api.times import format_micro_time
from wharfinger.replay.extras import require_extra
from wharfinger.replay.tables import API_VERSION, FILE, KIND, TABLES
from wharfinger.replay.trace import Trace, TraceMoment


def write_trace(trace: Trace, folder: Path, format: Literal["parquet", "csv"] = "parquet") -> None:
    """Writes the tables, and `trace.yaml` last, so that an unfinished folder is not a trace."""
    require_extra("polars")
    import polars as pl

    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, rows in _tables(trace).items():
        if not rows and name == "objects":
            continue
        frame = pl.DataFrame(rows, schema=_SCHEMAS[name], orient="row")
        path = folder / f"{name}.{format}"
        frame.write_parquet(path, compression="zstd") if format == "parquet" else frame.write_csv(path)
        files[name] = path.name
    header: Document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "format": TABLES,
        "start": format_micro_time(trace.start),
        "tables": {name: {"files": [file]} for name, file in files.items()},
    }
    (folder / FILE).write_text(yaml.safe_dump(header, sort_keys=False), encoding="utf-8")


_SCHEMAS: dict[str, dict[str, Any]] = {
    "nodes": {"name": str, "from": float, "to": float, "price": float, "manifest": str},
    "work": {
        "name": str,
        "namespace": str,
        "arrival": float,
        "submitted": float,
        "run_time": float,
        "departure": float,
        "stopping": float,
        "phase": str,
        "preempted": bool,
        "node": str,
        "bound": float,
        "present": bool,
        "owner": str,
        "manifest": str,
    },
    "objects": {"time": float, "deleted": bool, "manifest": str},
}


def _tables(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    def since(moment: TraceMoment | None) -> float | None:
        return None if moment is None else max(0.0, moment.time - trace.start)

    nodes = [(each.name, since(each.start), since(each.end), each.price, _json(each.document)) for each in trace.nodes]
    work = [
        (
            pod.name,
            pod.namespace,
            since(pod.arrival),
            since(pod.submitted),
            pod.run_time,
            None if pod.run_time is not None else since(pod.departure),
            since(pod.stopping),
            pod.phase or None,
            pod.preempted,
            pod.node or None,
            since(pod.bound),
            pod.present,
            pod.owner or None,
            _json(pod.document),
        )
        for pod in sorted(trace.pods, key=lambda each: each.arrival)
    ]
    objects = [(since(each.at), each.deleted, _json(each.document)) for each in trace.objects]
    return {"nodes": nodes, "work": work, "objects": objects}


def _json(document: Document) -> str:
    return msgspec.json.encode(document).decode()
