"""What a build folder says to people, other tools and Open MPI: tables, rankfile and hostfile.

The tables are those of AutoDiCE (section III-C). The runtime does not read them: what a rank sends
and receives stands in ``driver.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rankslice.backend.runtime.job import Rank
from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.files.output_file import whole_file
from rankslice.framework.plan import Plan
from rankslice.framework.specs.core_lists import core_ranges
from rankslice.framework.wording import quoted

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
            (rank.rank, receive.tensor, receive.source)
            for route in plan.routes
            for rank in route.ranks
            for receive in rank.receives
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


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_IPV6 = re.compile(r"[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){2,7}")


def rankfile(placements: Sequence[Rank]) -> str:
    """Return the text of a rankfile: ``rank 0=host slot=0-3,6``, one line per rank from 0.

    Cores are the kernel's numbers, which are slots of Open MPI only if each core has one thread and
    mpirun may use all. Open MPI 4.1 and 5 both read this form, and both want the ranks ascending
    from 0 without a gap.
    """
    raise_mistakes(_mistakes(placements))
    return "".join(
        f"rank {rank}={placement.host} slot={core_ranges(placement.cores)}\n"
        for rank, placement in enumerate(placements)
    )


def hostfile(placements: Sequence[Rank]) -> str:
    """Return the text of a hostfile: ``host slots=N``, in the order in which ranks name hosts.

    A host gets a slot for each core in use, and one for each rank at least.
    """
    raise_mistakes(_mistakes(placements))
    hosts = dict.fromkeys(placement.host for placement in placements)
    here = {host: [rank.cores for rank in placements if rank.host == host] for host in hosts}
    return "".join(
        f"{host} slots={max(len(cores), len({core for some in cores for core in some}))}\n"
        for host, cores in here.items()
    )


def _mistakes(placements: Sequence[Rank]) -> Iterator[Mistake]:
    for placement in placements:
        where = f"rank {placement.rank}, key {quoted(placement.key)}"
        if not (_HOST.fullmatch(placement.host) or _IPV6.fullmatch(placement.host)):
            found = f"Open MPI cannot read {quoted(placement.host)} as a host"
            expected = "expected a name of letters, digits, dots and dashes, or an IP address"
            yield Mistake(f"{where}: board {quoted(placement.board)}", found, expected)
        if not placement.cores:
            yield Mistake(where, "it has no core", "an MPI process needs one to run on")
