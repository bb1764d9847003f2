"""Scores from Prometheus: each score is a PromQL query with one value per cluster, and a normalisation."""

from __future__ import annotations

import logging
import math
import ssl
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wharfinger.api.times import BadTime, parse_duration
from wharfinger.client.timers import Clock, SystemClock
from wharfinger.systems.placement.scores.normalise import Linear, Normalisation, Relative

log = logging.getLogger(__name__)

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
    bearer_token_file: str = ""  # read for every request, since tokens are rotated
    ca_file: str = ""  # the certificates to verify the server with, instead of those of the system
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: dict[str, Any] = {}

    @property
    def seconds(self) -> tuple[float, float]:
        """The interval and the validity, in seconds."""
        return parse_duration(self.interval), parse_duration(self.valid_for)


def load(document: Any, folder: Path | None = None) -> PrometheusScores:
    """Reads the document. Relative file names are relative to `folder`, which is that of the document."""
    try:
        settings = msgspec.convert(document, PrometheusScores)
        interval, valid_for = settings.seconds
        for query in settings.scores:
            query.normalise.normalisation()
        names = [query.name for query in settings.scores]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"scores: the name {repeated[0]} is used more than once")
    except (msgspec.ValidationError, BadTime, ValueError) as error:
        raise BadPrometheusScores(str(error)) from error
    if settings.kind != KIND or settings.api_version != API_VERSION:
        raise BadPrometheusScores(f"expected apiVersion {API_VERSION} and kind {KIND}")
    if not 0 < interval <= valid_for / 2:
        raise BadPrometheusScores(
            "interval must be at most half of validFor, so that one failed round does not let scores expire"
        )
    return msgspec.structs.replace(
        settings,
        bearer_token_file=_file(settings.bearer_token_file, folder, "bearerTokenFile"),
        ca_file=_file(settings.ca_file, folder, "caFile"),
    )


def _file(name: str, folder: Path | None, field: str) -> str:
    if not name:
        return ""
    path = (folder or Path()) / name
    try:
        path.read_bytes()
    except OSError as error:
        raise BadPrometheusScores(f"{field}: {path}: {error.strerror}") from error
    return str(path)


def _token(name: str) -> str:
    return Path(name).read_text().strip()


class PrometheusSource:
    """Queries a Prometheus server. `close` closes its connections."""

    def __init__(self, settings: PrometheusScores, *, timeout: float = 30.0, clock: Clock | None = None) -> None:
        self._settings = settings
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._session: Any = None
        self._tls: ssl.SSLContext | bool = True
        self._last: dict[str, tuple[dict[str, int], float]] = {}  # by score: the scores of the clusters, and when
        self.failures: dict[str, str] = {}  # by score: why its query failed in the last round

    async def measure(self) -> dict[str, dict[str, int]]:
        """Scores by cluster and name. A cluster without a value for a query lacks that score.

        The scores of a query that fails are those of its last success until they are as old as scores may be, and absent
        afterwards. Raises the error if every query fails, so that nothing is renewed.
        """
        _, valid_for = self._settings.seconds
        self.failures = {}
        for query in self._settings.scores:
            try:
                scores = query.normalise.normalisation().scores(await self._ask(query))
                self._last[query.name] = (scores, self._clock.now())
            except (OSError, ValueError) as error:
                self.failures[query.name] = str(error)
                if self._clock.now() - self._last.get(query.name, ({}, -math.inf))[1] > valid_for:
                    self._last.pop(query.name, None)
        if len(self.failures) == len(self._settings.scores):
            raise OSError("; ".join(dict.fromkeys(self.failures.values())))
        for failure in dict.fromkeys(self.failures.values()):
            log.warning("cannot measure a score: %s", failure)
        measured: dict[str, dict[str, int]] = {}
        for name, (scores, _) in self._last.items():
            for cluster, score in scores.items():
                measured.setdefault(cluster, {})[name] = score
        return measured

    async def _ask(self, query: Query) -> dict[str, float]:
        import aiohttp

        settings = self._settings
        where = f"score {query.name}: Prometheus at {settings.server}"
        headers = {}
        if settings.bearer_token_file:
            headers["Authorization"] = f"Bearer {_token(settings.bearer_token_file)}"
        if self._session is None:
            if settings.ca_file:
                self._tls = ssl.create_default_context(cafile=settings.ca_file)
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        url = f"{settings.server.rstrip('/')}/api/v1/query"
        try:
            # A redirect would send the token to another server.
            async with self._session.post(
                url, data={"query": query.query}, headers=headers, ssl=self._tls, allow_redirects=False
            ) as response:
                body = await response.read()
        except TimeoutError as error:
            raise OSError(f"{where}: no answer within {self._timeout:g} s") from error
        except aiohttp.ClientError as error:
            raise OSError(f"{where}: {error}") from error
        if response.status != 200 and not _is_answer(body):
            raise OSError(f"{where}: HTTP {response.status} {response.reason}")
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


def _is_answer(body: bytes) -> bool:
    """Whether Prometheus itself says what is wrong, rather than a proxy before it."""
    try:
        return bool(msgspec.json.decode(body, type=_Answer).error)
    except msgspec.DecodeError:
        return False


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
