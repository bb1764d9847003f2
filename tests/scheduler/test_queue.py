"""The queue: order, back-off, waking by events, gates, and that no pod is ever lost."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.api.views import Pod, view
from wharfinger.scheduler.queue import FLUSH_AFTER, SchedulingQueue


def pod(name: str, priority: int = 0, gate: str = "") -> Pod:
    gates = [{"name": gate}] if gate else []
    document = {"metadata": {"namespace": "d", "name": name}, "spec": {"priority": priority, "schedulingGates": gates}}
    return view(document, Pod)


def queue() -> SchedulingQueue:
    return SchedulingQueue(gated=lambda pod: ", ".join(gate.name for gate in pod.spec.scheduling_gates))


def drain(q: SchedulingQueue, now: float) -> list[str]:
    names = []
    while (item := q.pop(now)) is not None:
        names.append(item.pod.metadata.name)
    return names


HELPS: Callable[[Pod, str], bool] = lambda pod, plugin: True  # noqa: E731


def test_priority_first_then_arrival() -> None:
    q = queue()
    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 10)):
        q.add(pod(name, priority), 0)
    assert drain(q, 0) == ["b", "d", "a", "c"]


def test_a_refused_pod_waits_for_an_event_its_plugins_listen_to() -> None:
    q = queue()
    q.add(pod("a"), 0)
    item = q.pop(0)
    assert item is not None
    q.refuse(item, {"NodeResourcesFit"}, 0)
    assert q.pop(5) is None
    q.wake(["NodeAffinity"], HELPS, 5)
    assert q.pop(5) is None
    q.wake(["NodeResourcesFit"], lambda pod, plugin: False, 5)
    assert q.pop(5) is None
    q.wake(["NodeResourcesFit"], HELPS, 5)
    assert drain(q, 5) == ["a"]


def test_an_error_backs_off_one_two_four_up_to_ten_seconds() -> None:
    q = queue()
    q.add(pod("a"), 0)
    now, waits = 0.0, []
    for _ in range(6):
        item = q.pop(now)
        assert item is not None
        q.fail(item, now)
        end = q.next_backoff()
        assert end is not None
        assert q.pop(end - 0.01) is None
        waits.append(end - now)
        now = end
    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_woken_pod_is_tried_at_once_when_nothing_else_is_active_but_after_active_ones() -> None:
    q = queue()
    q.add(pod("refused", priority=5), 0)
    item = q.pop(0)
    assert item is not None
    q.refuse(item, {"x"}, 0)
    q.add(pod("fresh"), 0.1)
    q.wake(["x"], HELPS, 0.1)
    assert drain(q, 0.1) == ["fresh", "refused"]


def test_gated_pods_are_not_tried_until_the_gates_go() -> None:
    q = queue()
    q.add(pod("a", gate="wait"), 0)
    q.flush_unschedulable(2 * FLUSH_AFTER)
    assert q.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert q.pop(1) is None
    q.update(pod("a", gate="other"), 2, retry=True)
    assert q.pop(2) is None
    q.update(pod("a"), 3, retry=True)
    assert drain(q, 3) == ["a"]


def test_what_waited_long_is_tried_again_without_an_event() -> None:
    q = queue()
    q.add(pod("a"), 0)
    item = q.pop(0)
    assert item is not None
    q.refuse(item, {"x"}, 0)
    q.flush_unschedulable(FLUSH_AFTER - 1)
    assert q.pop(FLUSH_AFTER - 1) is None
    q.flush_unschedulable(FLUSH_AFTER)
    assert drain(q, FLUSH_AFTER) == ["a"]


def test_a_changed_priority_moves_a_waiting_pod() -> None:
    q = queue()
    q.add(pod("a"), 0)
    q.add(pod("b"), 0)
    q.update(pod("b", priority=3), 0, retry=False)
    assert drain(q, 0) == ["b", "a"]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "pop", "refuse", "fail", "wake", "update", "tick", "bound"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(ACTIONS)
@settings(max_examples=200, deadline=None)
def test_no_pod_is_lost_or_tried_twice_at_once(actions: list[tuple[str, int]]) -> None:
    q = queue()
    now = 0.0
    there: set[str] = set()  # known to the API server and not bound
    flying = {}
    for action, n in actions:
        name = f"p{n}"
        if action == "add" and name not in there and name not in flying:
            q.add(pod(name), now)
            there.add(name)
        elif action == "remove" and name in there and name not in flying:
            q.remove(("d", name))
            there.discard(name)
        elif action == "pop":
            item = q.pop(now)
            if item is not None:
                assert item.pod.metadata.name not in flying
                flying[item.pod.metadata.name] = item
        elif action in ("refuse", "fail", "bound") and flying:
            taken = sorted(flying)[n % len(flying)]
            item = flying.pop(taken)
            if action == "refuse":
                q.refuse(item, {"x"}, now)
            elif action == "fail":
                q.fail(item, now)
            else:
                there.discard(taken)
        elif action == "wake":
            q.wake(["x"], HELPS, now)
        elif action == "update":
            q.update(pod(name, priority=n), now, retry=bool(n % 2))
        elif action == "tick":
            now += n
    q.flush_unschedulable(now + FLUSH_AFTER)
    assert sorted(drain(q, now + 2 * FLUSH_AFTER) + list(flying)) == sorted(there)
    assert len(q) == 0
