"""Who sends what to whom, for people and other tools: the tables of AutoDiCE (section III-C).

The runtime does not read them: :mod:`rankslice.framework.plan` is authoritative.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from rankslice.framework.plan import Plan

Table: TypeAlias = dict[str, dict[str, list[int]]]
"""Ranks by tensor by mapping key; every key is present."""


def sender_table(plan: Plan) -> Table:
    """Return, for each key, the tensors that its rank sends and the ranks they go to.

    Model inputs on their way from the source and model outputs on their way to the sink are
    tensors like any other.
    """
    table: Table = {placement.key: {} for placement in plan.ranks}
    for channel in plan.channels:
        sent = table[plan.ranks[channel.source].key]
        sent.setdefault(channel.tensor, []).append(channel.destination)
    return table


def receiver_table(plan: Plan) -> Table:
    """Return, for each key, the tensors that its rank receives and the ranks they come from."""
    table: Table = {placement.key: {} for placement in plan.ranks}
    for channel in plan.channels:
        received = table[plan.ranks[channel.destination].key]
        received.setdefault(channel.tensor, []).append(channel.source)
    return table


def table_to_json(table: Mapping[str, Mapping[str, list[int]]]) -> str:
    """Return the text of ``sender.json`` or ``receiver.json``: ASCII, a line per key."""
    lines = (f" {json.dumps(key)}: {json.dumps(tensors)}" for key, tensors in table.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
