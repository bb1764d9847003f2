"""Watches over HTTP: events, bookmarks, initial events and timeouts."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod


def version_of(api: Api, base: str) -> str:
    return str(api.get(f"{base}/configmaps?limit=1")["metadata"]["resourceVersion"])


def brief(event: Any) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def test_changes_arrive_in_order(api: Api, base: str) -> None:
    start = version_of(api, base)
    with api.watch(f"{base}/configmaps?watch=true&resourceVersion={start}") as events:
        api.create(f"{base}/configmaps", config_map("a"))
        api.ask("PATCH", f"{base}/configmaps/a", {"data": {"x": "1"}}, media="application/merge-patch+json")
        api.ask("DELETE", f"{base}/configmaps/a")
        seen = list(itertools.islice(events, 3))
    assert [brief(event) for event in seen] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("query", ["watch=1", "watch=true&resourceVersion=0"])
def test_a_watch_without_a_version_starts_with_the_current_state(api: Api, base: str, query: str) -> None:
    api.create(f"{base}/configmaps", config_map("a"))
    api.create(f"{base}/configmaps", config_map("b"))
    with api.watch(f"{base}/configmaps?{query}") as events:
        assert [brief(event) for event in itertools.islice(events, 2)] == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_list_marks_the_end_of_the_initial_events(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", config_map("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with api.watch(f"{base}/configmaps?{query}") as events:
        first, mark = itertools.islice(events, 2)
    assert brief(first) == ("ADDED", "a")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "ConfigMap"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_times_out_with_a_bookmark(api: Api, base: str) -> None:
    with api.watch(f"{base}/configmaps?watch=1&timeoutSeconds=1&allowWatchBookmarks=true") as events:
        seen = list(events)
    assert [event["type"] for event in seen] == ["BOOKMARK"]
    assert seen[0]["object"]["metadata"]["resourceVersion"].isdigit()


def test_selectors_turn_changes_into_additions_and_deletions(api: Api, base: str) -> None:
    with api.watch(f"{base}/pods?watch=1&labelSelector=app%3Dtest") as events:
        api.create(f"{base}/pods", pod("a"))
        label: dict[str, Any] = {"metadata": {"labels": {"app": "other"}}}
        api.ask("PATCH", f"{base}/pods/a", label, media="application/merge-patch+json")
        label["metadata"]["labels"]["app"] = "test"
        api.ask("PATCH", f"{base}/pods/a", label, media="application/merge-patch+json")
        assert [brief(event) for event in itertools.islice(events, 3)] == [
            ("ADDED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
        ]


def test_all_watches_of_a_kind_see_the_same_changes(api: Api, base: str, namespace: str) -> None:
    start = version_of(api, base)
    paths = (
        f"/api/v1/configmaps?watch=1&resourceVersion={start}&fieldSelector=metadata.namespace%3D{namespace}",
        f"{base}/configmaps?watch=1&resourceVersion={start}",
        f"{base}/configmaps?watch=1&resourceVersion={start}&labelSelector=x%21%3Dy",
        f"{base}/configmaps?watch=1&resourceVersion={start}",
    )
    names = [f"c{number}" for number in range(8)]
    for name in names[:4]:
        api.create(f"{base}/configmaps", config_map(name))
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(api.watch(path)) for path in paths]
        for name in names[4:]:
            api.create(f"{base}/configmaps", config_map(name))
            api.ask("DELETE", f"{base}/configmaps/{name}")
        wanted = [("ADDED", name) for name in names[:4]]
        wanted += [(type, name) for name in names[4:] for type in ("ADDED", "DELETED")]
        seen = [list(itertools.islice(events, len(wanted))) for events in watches]
    assert [brief(event) for event in seen[0]] == wanted
    assert seen[1:] == seen[:1] * 3


def test_one_object_can_be_watched_by_field_selector_or_deprecated_path(api: Api, base: str, namespace: str) -> None:
    api.create(f"{base}/configmaps", config_map("a"))
    api.create(f"{base}/configmaps", config_map("b"))
    for path in (
        f"{base}/configmaps?watch=1&fieldSelector=metadata.name%3Db",
        f"/api/v1/watch/namespaces/{namespace}/configmaps/b",
    ):
        with api.watch(path) as events:
            assert brief(next(events)) == ("ADDED", "b")


def test_a_future_resource_version_is_rejected(api: Api, base: str) -> None:
    query = "watch=1&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    answer = api.ask("GET", f"{base}/configmaps?{query}")
    assert answer.status == 504
    assert "Too large resource version" in answer.message


def test_a_watch_can_be_a_table(api: Api, base: str) -> None:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    with api.watch(f"{base}/pods?watch=1", accept) as events:
        api.create(f"{base}/pods", pod("a"))
        api.create(f"{base}/pods", pod("b"))
        first, second = itertools.islice(events, 2)
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert first["object"]["rows"][0]["cells"][0] == "a"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_a_watch_can_be_metadata_only(api: Api, base: str) -> None:
    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    with api.watch(f"{base}/pods?watch=1", accept) as events:
        api.create(f"{base}/pods", pod("a"))
        shown = next(events)["object"]
    assert (shown["kind"], shown["metadata"]["name"], "spec" in shown) == ("PartialObjectMetadata", "a", False)
