"""Both forms of the plugin give the same answers."""

import pytest
from quiet_racks import QuietNodes, QuietRacks

from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine, default_profile


def node(name, **labels):
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return view({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": room}}, Node)


def pod(name, on=""):
    return view({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": on}}, Pod)


@pytest.mark.parametrize("plugin", [QuietRacks, QuietNodes])
def test_nodes_in_maintenance_are_refused_and_quiet_ones_preferred(plugin):
    engine = Engine([default_profile(extra=[plugin], weights={plugin.name: 50})], plugins={plugin.name: plugin})
    for each in (node("busy"), node("quiet"), node("closed", **{"example.com/maintenance": "tonight"})):
        engine.set_node(each)
    for index in range(3):
        engine.set_pod(pod(f"running-{index}", "busy"))

    answer = engine.explain(pod("new")).document()["nodes"]

    assert answer["closed"]["plugin"] == plugin.name
    assert answer["closed"]["reasons"] == ["node(s) were in maintenance"]
    assert {name: answer[name]["scores"][plugin.name] for name in ("busy", "quiet")} == {"busy": 4850, "quiet": 5000}
    assert engine.schedule(pod("new")).node == "quiet"
