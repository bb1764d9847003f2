"""Changes to a pod that may let it onto a node: smaller requests, tolerations, and constraints that are dropped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from wharfinger.api.resources import CPU, MEMORY, in_units, is_pod_level, nano, quantity_of, requests
from wharfinger.api.views import Pod
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Affinity, Container, Quantities, ResourceRequirements, Toleration


def with_requests(pod: Pod, targets: Mapping[str, int]) -> Pod | None:
    """The pod with requests lowered to these totals, in scheduler units; None if that cannot be reached. The container
    that asks for most gives up most."""
    for name, target in targets.items():
        pod = _with_request(pod, name, target)
    reached = requests(pod)
    return pod if all(reached.get(name, 0) <= target for name, target in targets.items()) else None


def _with_request(pod: Pod, name: str, target: int) -> Pod:
    spec = pod.spec
    left = target - in_units(nano(spec.overhead)).get(name, 0)
    if spec.resources is not None and name in spec.resources.requests and is_pod_level(name):
        return replace(pod, spec=replace(spec, resources=_lowered(spec.resources, name, left)))
    running = [*spec.containers, *(each for each in spec.init_containers if each.restart_policy == "Always")]
    amounts = {each.name: _asked(each, name) for each in running}
    excess = sum(amounts.values()) - left
    for container in sorted(amounts, key=lambda each: -amounts[each]):
        if excess > 0:
            cut = min(excess, amounts[container])
            amounts[container] -= cut
            excess -= cut

    def lowered(container: Container) -> Container:
        most = amounts.get(container.name, left)
        if _asked(container, name) <= most:
            return container
        return replace(container, resources=_lowered(container.resources, name, most))

    return _with_containers(pod, lowered)


def _with_containers(pod: Pod, change: Callable[[Container], Container]) -> Pod:
    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=tuple(change(each) for each in spec.containers),
            init_containers=tuple(change(each) for each in spec.init_containers),
        ),
    )


def _asked(container: Container, name: str) -> int:
    resources = container.resources
    quantities = resources.requests if name in resources.requests else resources.limits
    return in_units(nano({name: quantities[name]}))[name] if name in quantities else 0


def _lowered(resources: ResourceRequirements, name: str, amount: int) -> ResourceRequirements:
    quantity = quantity_of(name, max(amount, 0))
    limits = resources.limits
    if name in limits and name not in (CPU, MEMORY):  # devices cannot be over-committed: both must be equal
        limits = {**limits, name: quantity}
    written: Quantities = {**resources.requests, name: quantity}
    return replace(resources, requests=written, limits=limits)


def toleration_of(taint: Taint) -> Toleration:
    """The narrowest toleration of a taint."""
    return Toleration(
        key=taint.key, operator="Equal" if taint.value else "Exists", value=taint.value, effect=taint.effect
    )


def with_tolerations(pod: Pod, tolerations: Iterable[Toleration]) -> Pod:
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *tolerations)))


def without_selector(pod: Pod, keys: Collection[str]) -> Pod:
    kept = {key: value for key, value in pod.spec.node_selector.items() if key not in keys}
    return replace(pod, spec=replace(pod.spec, node_selector=kept))


def without_node_affinity(pod: Pod) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    if affinity.node_affinity is None:
        return pod
    return _with_affinity(pod, replace(affinity, node_affinity=replace(affinity.node_affinity, required=None)))


def without_pod_affinity(pod: Pod) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    if affinity.pod_affinity is None:
        return pod
    return _with_affinity(pod, replace(affinity, pod_affinity=replace(affinity.pod_affinity, required=())))


def without_pod_anti_affinity(pod: Pod) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    if affinity.pod_anti_affinity is None:
        return pod
    return _with_affinity(pod, replace(affinity, pod_anti_affinity=replace(affinity.pod_anti_affinity, required=())))


def _with_affinity(pod: Pod, affinity: Affinity) -> Pod:
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def with_soft_spread(pod: Pod) -> Pod:
    """The pod with topology spread constraints that are preferences only."""
    soft = tuple(replace(each, when_unsatisfiable="ScheduleAnyway") for each in pod.spec.topology_spread_constraints)
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=soft))


def without_host_ports(pod: Pod) -> Pod:
    def cleared(container: Container) -> Container:
        return replace(container, ports=tuple(replace(port, host_port=0) for port in container.ports))

    return _with_containers(pod, cleared)


def without_gates(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, scheduling_gates=()))


def with_priority(pod: Pod, priority: int) -> Pod:
    return replace(pod, spec=replace(pod.spec, priority=priority, preemption_policy=None))
