"""Numbered things in an order in which each comes after those on which it depends."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def dependency_order(before: Sequence[Collection[int]], keys: Sequence[int]) -> list[int]:
    """Return the numbers in a topological order, without those that depend on a cycle.

    Args:
        before: for each number those that come before it, each once.
        keys: of the numbers that could come next, the one with the smallest key does.
    """
    after: list[list[int]] = [[] for _ in before]
    for number, sources in enumerate(before):
        for source in sources:
            after[source].append(number)
    missing = [len(sources) for sources in before]
    ready = [(keys[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for reader in after[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (keys[reader], reader))
    return order
