"""Scores from Prometheus: each score is a PromQL query with one value per cluster, and a normalisation."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wharfinger.api.times import BadTime, parse_duration
from wharfinger.systems.placement.scores.normalise import Linear, Normalisation, Relative

KIND = "PrometheusScores"
API_VERSION = "wharfinger.dev/v1alpha1"


class BadPrometheusScores(ValueError):
    """The document is not a valid PrometheusScores."""


class _Block(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base class of the document's structs."""


class NormaliseSetting(_Block, frozen=True):
    """Either `worst` and `best` (a fixed scale), or `relative` to the values of all clusters."""

    worst: float | None = None
    best: float | None = None
    relative: bool = False
    less_is_better: bool = False

    def normalisation(self) -> Normalisation:
        if self.relative:
            if self.worst is not None or self.best is not None:
                raise ValueError("normalise: relative takes neither worst nor best")
            return Relative(self.less_is_better)
        if self.worst is None or self.best is None:
            raise ValueError("normalise: set worst and best, or relative")
        if self.less_is_better:
            raise ValueError("normalise: lessIsBetter requires relative; otherwise make worst the larger number")
        return Linear(self.worst, self.best)


class Query(_Block, frozen=True):
    name: Annotated[str, Meta(min_length=1)]
    query: Annotated[str, Meta(min_length=1)]
    normalise: NormaliseSetting
    cluster_label: str = "cluster"


class PrometheusScores(_Block, frozen=True):
    server: Annotated[str, Meta(pattern="^https?://")]
    resource_name: Annotated[str, Meta(min_length=1)]
    scores: Annotated[tuple[Query, ...], Meta(min_length=1)]
    interval: str = "30s"
    valid_for: str = "5m"
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: dict[str, Any] = {}

    @property
    def seconds(self) -> tuple[float, float]:
        """The interval and the validity, in seconds."""
        return parse_duration(self.interval), parse_duration(self.valid_for)


def load(document: Any) -> PrometheusScores:
    try:
        settings = msgspec.convert(document, PrometheusScores)
        interval, valid_for = settings.seconds
        for query in settings.scores:
            query.normalise.normalisation()
    except (msgspec.ValidationError, BadTime, ValueError) as error:
        raise BadPrometheusScores(str(error)) from error
    if settings.kind != KIND or settings.api_version != API_VERSION:
        raise BadPrometheusScores(f"expected apiVersion {API_VERSION} and kind {KIND}")
    if not 0 < interval <= valid_for / 2:
        raise BadPrometheusScores(
            "interval must be at most half of validFor, so that one failed round does not let scores expire"
        )
    return settings


class PrometheusSource:
    """Queries a Prometheus server. `close` closes its connections."""

    def __init__(self, settings: PrometheusScores, *, timeout: float = 30.0) -> None:
        self._settings = settings
        self._timeout = timeout
        self._session: Any = None

    async def measure(self) -> dict[str, dict[str, int]]:
        """Scores by cluster and name. A cluster without a value for a query lacks that score."""
        measured: dict[str, dict[str, int]] = {}
        for query in self._settings.scores:
            values = await self._ask(query)
            for cluster, score in query.normalise.normalisation().scores(values).items():
                measured.setdefault(cluster, {})[query.name] = score
        return measured

    async def _ask(self, query: Query) -> dict[str, float]:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        url = f"{self._settings.server.rstrip('/')}/api/v1/query"
        try:
            async with self._session.post(url, data={"query": query.query}) as response:
                body = await response.read()
        except aiohttp.ClientError as error:
            raise OSError(f"Prometheus at {self._settings.server}: {error}") from error
        return values_of(body, query)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Series(msgspec.Struct):
    value: tuple[float, str]  # time, number as text
    metric: dict[str, str] = {}


class _Type(msgspec.Struct, rename="camel"):
    result_type: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    error_type: str = ""
    error: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Vector(msgspec.Struct):
    result: tuple[_Series, ...]


def values_of(body: bytes, query: Query) -> dict[str, float]:
    """The value of each cluster in a query API response; series without the cluster label are ignored."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        if answer.status != "success":
            raise ValueError(f"score {query.name}: {answer.error_type or 'error'}: {answer.error}")
        kind = msgspec.json.decode(answer.data, type=_Type).result_type
        if kind != "vector":
            raise ValueError(f"score {query.name}: the query returns a {kind or 'nothing'}, expected an instant vector")
        found = [
            (series.metric.get(query.cluster_label), float(series.value[1]))
            for series in msgspec.json.decode(answer.data, type=_Vector).result
        ]
    except msgspec.ValidationError as error:
        raise ValueError(f"score {query.name}: not an answer of Prometheus: {error}") from error
    except msgspec.DecodeError as error:
        raise ValueError(f"score {query.name}: the response of Prometheus is not JSON") from error
    values: dict[str, float] = {}
    for cluster, value in found:
        if not cluster or math.isnan(value):
            continue
        if cluster in values:
            raise ValueError(f"score {query.name}: more than one value for the cluster {cluster}; aggregate the query")
        values[cluster] = value
    return values
