"""Lays groups out as pages, PlacementDecisions of at most 100 clusters, and orders the writes.

A cluster stays on its page as long as possible. To move, it is written to the new page before it is removed from the
old one, so that a watcher never sees a selected cluster missing from all pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from wharfinger.api.registry import Document
from wharfinger.systems.placement.rules.groups import SelectedGroup

PAGE_SIZE = 100


class Page(msgspec.Struct, frozen=True):
    """The desired state of one PlacementDecision."""

    name: str
    group_index: int
    group_name: str
    clusters: tuple[str, ...]


class PageStep(msgspec.Struct, frozen=True):
    """One write: sets the clusters of the named page; None deletes it."""

    page: str
    clusters: tuple[str, ...] | None


def page_name(placement: str, number: int) -> str:
    return f"{placement}-decision-{number}"


def lay_out(
    placement: str,
    groups: Sequence[SelectedGroup],
    names: Sequence[str],
    existing: Mapping[str, Sequence[str]],
    *,
    sticky: bool = True,
) -> list[Page]:
    """The pages of all groups, numbered consecutively from 1. With `sticky`, clusters stay on their current page."""
    pages: list[Page] = []
    for index, group in enumerate(groups):
        clusters = [names[row] for row in group.rows]
        count = max(1, -(-len(clusters) // PAGE_SIZE))
        titles = [page_name(placement, len(pages) + number + 1) for number in range(count)]
        kept = [existing.get(title, ()) if sticky else () for title in titles]
        for title, part in zip(titles, _distribute(clusters, kept), strict=True):
            pages.append(Page(title, index, group.name, part))
    return pages


def _distribute(clusters: list[str], kept: list[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    place = {name: position for position, name in enumerate(clusters)}
    homes: dict[str, int] = {}
    sizes = [0] * len(kept)
    for page, names in enumerate(kept):
        for name in names:
            if name in place and name not in homes and sizes[page] < PAGE_SIZE:
                homes[name] = page
                sizes[page] += 1
    page = 0
    for name in clusters:
        if name not in homes:
            while sizes[page] >= PAGE_SIZE:
                page += 1
            homes[name] = page
            sizes[page] += 1
    contents: list[list[str]] = [[] for _ in kept]
    for name in clusters:
        contents[homes[name]].append(name)
    return (tuple(content) for content in contents)


def steps(placement: str, existing: Mapping[str, Sequence[str]], wanted: Sequence[Page]) -> list[PageStep]:
    """The writes that lead from the existing to the wanted pages without a selected cluster ever missing.

    A page gets its final content once every cluster that it loses is on another page. If pages wait for each other in a
    cycle, the clusters that one of them loses are first put on a temporary page, which is deleted at the end.
    """
    now: dict[str, tuple[str, ...]] = {name: tuple(clusters) for name, clusters in existing.items()}
    final = {page.name: page.clusters for page in wanted}
    selected = {cluster for clusters in final.values() for cluster in clusters}
    todo = [name for name in final if now.get(name) != final[name]]
    planned: list[PageStep] = []

    def write(name: str, clusters: tuple[str, ...]) -> None:
        now[name] = clusters
        planned.append(PageStep(name, clusters))

    def homeless(name: str) -> tuple[str, ...]:
        """Selected clusters that only this page holds and that are not in its final content."""
        elsewhere = {cluster for other, clusters in now.items() if other != name for cluster in clusters}
        going = set(now.get(name, ())) & selected - set(final[name]) - elsewhere
        return tuple(cluster for cluster in now.get(name, ()) if cluster in going)

    spare = len(now) + len(final) + 1
    while todo:
        ready = next((name for name in todo if not homeless(name)), None)
        if ready is None:
            while page_name(placement, spare) in now or page_name(placement, spare) in final:
                spare += 1
            write(page_name(placement, spare), homeless(todo[0]))
            ready = todo[0]
        write(ready, final[ready])
        todo.remove(ready)
    planned += [PageStep(name, None) for name in sorted(now) if name not in final]
    return planned


def decided_clusters(decision: Document) -> list[str]:
    """The clusters in the document of a PlacementDecision."""
    return [each.get("clusterName", "") for each in (decision.get("status") or {}).get("decisions") or ()]
