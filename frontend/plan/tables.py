"""Who sends what to whom, for people and other tools: the tables of AutoDiCE (section III-C).

The runtime does not read them: what a rank sends and receives stands in ``driver.py``. They and
the files for mpirun are written from its job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from rankslice.framework.files.output_file import whole_file
from rankslice.framework.plan import Plan
from rankslice.frontend.plan.rankfile import hostfile, rankfile

Table: TypeAlias = dict[str, dict[str, list[int]]]
"""Ranks by tensor by mapping key; every key is present."""


def write_tables(folder: Path, plan: Plan) -> None:
    """Have the tables, rankfile and hostfile of a build folder say what the plan says."""
    texts = {
        "sender.json": table_to_json(sender_table(plan)),
        "receiver.json": table_to_json(receiver_table(plan)),
        "rankfile": rankfile(plan.ranks),
        "hostfile": hostfile(plan.ranks),
    }
    for name, text in texts.items():
        path, content = folder / name, text.encode()
        if not path.is_file() or path.read_bytes() != content:
            with whole_file(path) as file:
                file.write(content)


def sender_table(plan: Plan) -> Table:
    """Return, for each key, the tensors that its rank sends and the ranks they go to.

    Model inputs on their way from the source and model outputs on their way to the sink are
    tensors like any other. Of two routes it has what is sent on either, once.
    """
    return _table(
        plan,
        ((r.rank, s.tensor, s.to) for route in plan.routes for r in route.ranks for s in r.sends),
    )


def receiver_table(plan: Plan) -> Table:
    """Return, for each key, the tensors that its rank receives and the ranks they come from."""
    return _table(
        plan,
        (
            (rank.rank, each.tensor, each.source)
            for route in plan.routes
            for rank in route.ranks
            for each in rank.receives
        ),
    )


def _table(plan: Plan, rows: Iterable[tuple[int, str, int]]) -> Table:
    table: Table = {placement.key: {} for placement in plan.ranks}
    for rank, tensor, other in dict.fromkeys(rows):
        table[plan.ranks[rank].key].setdefault(tensor, []).append(other)
    return table


def table_to_json(table: Mapping[str, Mapping[str, list[int]]]) -> str:
    """Return the text of ``sender.json`` or ``receiver.json``: ASCII, a line per key."""
    lines = (f" {json.dumps(key)}: {json.dumps(tensors)}" for key, tensors in table.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
