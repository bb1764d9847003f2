"""Reads a KubeSchedulerConfiguration v1.

Fields without effect are accepted with a warning; unknown and invalid ones are rejected, each with its path. The known
plugins are passed in, and their arguments are passed on as written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from wharfinger.api.fields import FieldError, describe, duplicate, invalid, not_supported, required, wrong_type
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.engine.profile import ProfileSpec
from wharfinger.framework.plugin import EXTENSION_POINTS

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
_MULTI = "multiPoint"
_NO_EFFECT = {
    "parallelism": "the engine evaluates all nodes at once",
    "percentageOfNodesToScore": "every node is always considered",
    "enableProfiling": "use py-spy or the metrics endpoint instead",
    "enableContentionProfiling": "the scheduler uses no locks",
    "delayCacheUntilActive": "the cache is always kept warm",
}


class BadSchedulerConfiguration(ValueError):
    """The configuration cannot be used; every fault with its path."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(describe(errors))
        self.errors = list(errors)


class PluginInfo(msgspec.Struct, frozen=True):
    """What the configuration needs to know of a plugin: its extension points, and its weight when none is given."""

    points: frozenset[str]
    weight: int = 1
    enabled: bool = True  # by default
    ours: bool = False  # re-enabling it without a weight keeps its default weight (upstream's fall to 1)
    aliases: tuple[str, ...] = ()
    faults: Callable[[Mapping[str, Any], str], Sequence[FieldError]] | None = None  # of arguments given at a path


class LeaderElection(msgspec.Struct, frozen=True):
    leader_elect: bool = True
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    resource_name: str = "wharfinger-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(msgspec.Struct, frozen=True):
    kubeconfig: str = ""
    qps: float = 0.0  # 0: no limit of our own; the server's priority and fairness rules
    burst: int = 0


class SchedulerConfiguration(msgspec.Struct, frozen=True):
    profiles: tuple[ProfileSpec, ...]
    leader_election: LeaderElection = msgspec.field(default_factory=LeaderElection)
    client_connection: ClientConnection = msgspec.field(default_factory=ClientConnection)
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    kubernetes: KubernetesVersion = REFERENCE  # the version whose plugins and rules apply
    warnings: tuple[str, ...] = ()


def load_scheduler_configuration(
    document: Mapping[str, Any], plugins: Mapping[str, PluginInfo], default_names: Sequence[str] = ("wharfinger",)
) -> SchedulerConfiguration:
    """An empty document means the defaults, with a profile for each default name. Raises BadSchedulerConfiguration."""
    return _ConfigurationReader(plugins).read(document, default_names)


class _ConfigurationReader:
    def __init__(self, plugins: Mapping[str, PluginInfo]) -> None:
        self._plugins = plugins
        self._names = {alias: name for name, info in plugins.items() for alias in (name, *info.aliases)}
        self._errors: list[FieldError] = []
        self._warnings: list[str] = []

    def read(self, document: Mapping[str, Any], default_names: Sequence[str]) -> SchedulerConfiguration:
        known = (
            "apiVersion",
            "kind",
            "profiles",
            "leaderElection",
            "clientConnection",
            "podInitialBackoffSeconds",
            "podMaxBackoffSeconds",
            "extenders",
            *_NO_EFFECT,
        )
        self._unknown(document, known, "")
        self._type_meta(document)
        if document.get("extenders"):
            self._errors.append(
                FieldError("extenders", "FieldValueForbidden", "extenders are not supported; write a plugin instead")
            )
        for key, why in _NO_EFFECT.items():
            if key in document:
                self._warnings.append(f"{key} has no effect: {why}")
        parallelism = document.get("parallelism")
        if _whole(parallelism) and parallelism <= 0:
            self._errors.append(invalid("parallelism", parallelism, "should be an integer value greater than zero"))
        self._percentage(document, "percentageOfNodesToScore")
        initial = self._seconds(document, "podInitialBackoffSeconds", 1.0)
        longest = self._seconds(document, "podMaxBackoffSeconds", max(10.0, initial))
        if initial <= 0:
            given = document.get("podInitialBackoffSeconds")
            self._errors.append(invalid("podInitialBackoffSeconds", given, "must be greater than 0"))
        if longest < initial:
            detail = "must be greater than or equal to PodInitialBackoffSeconds"
            self._errors.append(invalid("podMaxBackoffSeconds", document.get("podMaxBackoffSeconds"), detail))
        configuration = SchedulerConfiguration(
            profiles=self._profiles(document, default_names),
            leader_election=self._leader_election(self._block(document, "leaderElection")),
            client_connection=self._client_connection(self._block(document, "clientConnection")),
            initial_backoff=initial,
            max_backoff=longest,
            warnings=tuple(self._warnings),
        )
        if self._errors:
            raise BadSchedulerConfiguration(self._errors)
        return configuration

    def _type_meta(self, document: Mapping[str, Any]) -> None:
        api_version, kind = document.get("apiVersion", API_VERSION), document.get("kind", KIND)
        if api_version != API_VERSION:
            self._errors.append(not_supported("apiVersion", api_version, (API_VERSION,)))
        if kind != KIND:
            self._errors.append(not_supported("kind", kind, (KIND,)))

    def _profiles(self, document: Mapping[str, Any], default_names: Sequence[str]) -> tuple[ProfileSpec, ...]:
        given = document.get("profiles")
        if given is not None and not isinstance(given, list):
            self._errors.append(wrong_type("profiles", given, "array"))
            return ()
        if not given:
            return tuple(self._profile({"schedulerName": name}, "profiles[0]") for name in default_names)
        profiles: list[ProfileSpec] = []
        for index, item in enumerate(given):
            path = f"profiles[{index}]"
            if not isinstance(item, Mapping):
                self._errors.append(wrong_type(path, item, "object"))
                continue
            if len(given) == 1 and not item.get("schedulerName"):
                item = {**item, "schedulerName": "default-scheduler"}
            profile = self._profile(item, path)
            if profile.scheduler_name in {other.scheduler_name for other in profiles}:
                self._errors.append(duplicate(f"{path}.schedulerName", profile.scheduler_name))
            profiles.append(profile)
        sorts = {profile.points["queueSort"] for profile in profiles}
        if len(sorts) > 1:
            self._errors.append(invalid("profiles", len(sorts), "queueSort must be the same for all profiles"))
        return tuple(profiles)

    def _profile(self, item: Mapping[str, Any], path: str) -> ProfileSpec:
        known = ("schedulerName", "plugins", "pluginConfig", "percentageOfNodesToScore")
        self._unknown(item, known, path)
        if "percentageOfNodesToScore" in item:
            why = _NO_EFFECT["percentageOfNodesToScore"]
            self._warnings.append(f"{path}.percentageOfNodesToScore has no effect: {why}")
            self._percentage(item, f"{path}.percentageOfNodesToScore")
        name = item.get("schedulerName")
        if not isinstance(name, str) or not name:
            self._errors.append(required(f"{path}.schedulerName"))
            name = ""
        sets = self._block(item, "plugins", path)
        self._unknown(sets, (_MULTI, *EXTENSION_POINTS), f"{path}.plugins")
        multi, weights = self._multi_point(sets, f"{path}.plugins.{_MULTI}")
        points = {}
        for point in EXTENSION_POINTS:
            points[point] = self._point(point, sets, multi, weights, f"{path}.plugins.{point}")
        if len(points["queueSort"]) > 1:
            detail = "only one queue sort plugin can be enabled"
            self._errors.append(invalid(f"{path}.plugins.queueSort.enabled", list(points["queueSort"]), detail))
        return ProfileSpec(name, points, weights, self._plugin_config(item.get("pluginConfig"), path))

    def _multi_point(self, sets: Mapping[str, Any], path: str) -> tuple[list[str], dict[str, int]]:
        """The plugins enabled at all of their extension points, defaults first, and the weights known so far."""
        enabled, disabled = self._set(sets.get(_MULTI), path)
        order = [] if "*" in disabled else [name for name, info in self._plugins.items() if info.enabled]
        order = [name for name in order if name not in disabled or name in enabled]
        # A default plugin that is named again keeps its place, as upstream's mergePluginSet does.
        order += [name for name in enabled if name not in order]
        weights = {}
        for name in order:
            info = self._plugins[name]
            if name in enabled and not (info.ours and not enabled[name]):
                weights[name] = enabled[name] or 1
            else:
                weights[name] = info.weight
        return order, weights

    def _point(
        self, point: str, sets: Mapping[str, Any], multi: Sequence[str], weights: dict[str, int], path: str
    ) -> tuple[str, ...]:
        enabled, disabled = self._set(sets.get(point), path)
        for name in enabled:
            if point not in self._plugins[name].points:
                self._errors.append(invalid(f"{path}.enabled", name, f"the plugin does not implement {point}"))
        everywhere = [] if "*" in disabled else [name for name in multi if point in self._plugins[name].points]
        everywhere = [name for name in everywhere if name not in disabled]
        overriding = [name for name in enabled if name in everywhere]
        others = [name for name in enabled if name not in everywhere]
        if point == "score":
            for name, weight in enabled.items():
                info = self._plugins[name]
                weights[name] = weight or (info.weight if info.ours else 1)
        return (*overriding, *(name for name in everywhere if name not in enabled), *others)

    def _set(self, value: Any, path: str) -> tuple[dict[str, int], set[str]]:
        """Enabled plugins with their weights (0: none given) and disabled ones; aliases are resolved."""
        if value is None:
            return {}, set()
        if not isinstance(value, Mapping):
            self._errors.append(wrong_type(path, value, "object"))
            return {}, set()
        self._unknown(value, ("enabled", "disabled"), path)
        enabled: dict[str, int] = {}
        for index, item in enumerate(self._items(value, "enabled", path)):
            here = f"{path}.enabled[{index}]"
            name = self._plugin_name(item, here, ("name", "weight"))
            if name is None:
                continue
            if name in enabled:
                self._errors.append(duplicate(f"{here}.name", item["name"]))
            weight = item.get("weight", 0)
            if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
                self._errors.append(invalid(f"{here}.weight", weight, "must be a whole number, 0 or more"))
                weight = 0
            enabled[name] = weight
        disabled: set[str] = set()
        for index, item in enumerate(self._items(value, "disabled", path)):
            if isinstance(item, Mapping) and item.get("name") == "*":
                disabled.add("*")
            elif (name := self._plugin_name(item, f"{path}.disabled[{index}]", ("name", "weight"))) is not None:
                disabled.add(name)
        return enabled, disabled

    def _plugin_name(self, item: Any, path: str, known: tuple[str, ...]) -> str | None:
        if not isinstance(item, Mapping):
            self._errors.append(wrong_type(path, item, "object"))
            return None
        self._unknown(item, known, path)
        name = item.get("name")
        if not isinstance(name, str) or not name:
            self._errors.append(required(f"{path}.name"))
            return None
        if name not in self._names:
            self._errors.append(
                invalid(f"{path}.name", name, f"no such plugin; there are: {', '.join(sorted(self._plugins))}")
            )
            return None
        return self._names[name]

    def _plugin_config(self, value: Any, path: str) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for index, item in enumerate(self._items({"pluginConfig": value}, "pluginConfig", path)):
            here = f"{path}.pluginConfig[{index}]"
            name = self._plugin_name(item, here, ("name", "args"))
            if name is None:
                continue
            if name in found:
                self._errors.append(duplicate(here, item["name"]))
                continue
            args = item.get("args")
            if args is not None and not isinstance(args, Mapping):
                self._errors.append(wrong_type(f"{here}.args", args, "object"))
                args = None
            found[name] = {key: each for key, each in (args or {}).items() if key not in ("apiVersion", "kind")}
            check = self._plugins[name].faults
            if check is not None:
                self._errors += check(found[name], f"{here}.args")
        return found

    def _leader_election(self, block: Mapping[str, Any]) -> LeaderElection:
        path, fallback = "leaderElection", LeaderElection()
        known = (
            "leaderElect",
            "leaseDuration",
            "renewDeadline",
            "retryPeriod",
            "resourceLock",
            "resourceName",
            "resourceNamespace",
        )
        self._unknown(block, known, path)
        if block.get("resourceLock", "leases") != "leases":
            detail = 'resourceLock value must be "leases"'
            self._errors.append(invalid(f"{path}.resourceLock", block["resourceLock"], detail))
        settings = LeaderElection(
            leader_elect=bool(block.get("leaderElect", fallback.leader_elect)),
            lease_duration=self._duration(block, "leaseDuration", path, fallback.lease_duration),
            renew_deadline=self._duration(block, "renewDeadline", path, fallback.renew_deadline),
            retry_period=self._duration(block, "retryPeriod", path, fallback.retry_period),
            resource_name=str(block.get("resourceName") or fallback.resource_name),
            resource_namespace=str(block.get("resourceNamespace") or fallback.resource_namespace),
        )
        if settings.lease_duration <= settings.renew_deadline:
            detail = "must be greater than `RenewDeadline`"
            self._errors.append(invalid(f"{path}.leaseDuration", block.get("leaseDuration"), detail))
        if settings.renew_deadline <= settings.retry_period:
            detail = "must be greater than `RetryPeriod`"
            self._errors.append(invalid(f"{path}.renewDeadline", block.get("renewDeadline"), detail))
        return settings

    def _client_connection(self, block: Mapping[str, Any]) -> ClientConnection:
        self._unknown(block, ("kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"), "clientConnection")
        for key in ("acceptContentTypes", "contentType"):
            if block.get(key, "application/json") not in ("", "application/json"):
                self._warnings.append(f"clientConnection.{key} has no effect: only JSON is supported")
        return ClientConnection(
            str(block.get("kubeconfig") or ""), float(block.get("qps") or 0), int(block.get("burst") or 0)
        )

    def _block(self, item: Mapping[str, Any], key: str, path: str = "") -> Mapping[str, Any]:
        value = item.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._errors.append(wrong_type(f"{path}.{key}" if path else key, value, "object"))
            return {}
        return value

    def _items(self, item: Mapping[str, Any], key: str, path: str) -> list[Any]:
        value = item.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self._errors.append(wrong_type(f"{path}.{key}", value, "array"))
            return []
        return value

    def _unknown(self, item: Mapping[str, Any], known: Sequence[str], path: str) -> None:
        for key in item:
            if key not in known:
                here = f"{path}.{key}" if path else key
                self._errors.append(FieldError(here, "FieldValueForbidden", "unknown field"))

    def _percentage(self, item: Mapping[str, Any], path: str) -> None:
        given = item.get("percentageOfNodesToScore")
        if _whole(given) and not 0 <= given <= 100:
            self._errors.append(invalid(path, given, "not in valid range [0-100]"))

    def _seconds(self, item: Mapping[str, Any], key: str, fallback: float) -> float:
        value = item.get(key, fallback)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._errors.append(wrong_type(key, value, "integer"))
            return fallback
        return float(value)

    def _duration(self, item: Mapping[str, Any], key: str, path: str, fallback: float) -> float:
        value = item.get(key)
        if value is None:
            return fallback
        try:
            return parse_duration(str(value))
        except BadTime as error:
            self._errors.append(invalid(f"{path}.{key}", value, str(error)))
            return fallback


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
