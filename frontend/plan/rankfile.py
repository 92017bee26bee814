"""Where each rank runs, in the words of Open MPI: the rankfile and the hostfile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rankslice.backend.runtime.job import Rank
from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.specs.cores import core_ranges
from rankslice.framework.wording import quoted

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
    return "".join(f"{host} slots={_slots(host, placements)}\n" for host in hosts)


def _slots(host: str, placements: Sequence[Rank]) -> int:
    here = [placement for placement in placements if placement.host == host]
    return max(len(here), len({core for placement in here for core in placement.cores}))


def _mistakes(placements: Sequence[Rank]) -> Iterator[Mistake]:
    for placement in placements:
        where = f"rank {placement.rank}, key {quoted(placement.key)}"
        if not (_HOST.fullmatch(placement.host) or _IPV6.fullmatch(placement.host)):
            found = f"Open MPI cannot read {quoted(placement.host)} as a host"
            expected = "expected a name of letters, digits, dots and dashes, or an IP address"
            yield Mistake(f"{where}: board {quoted(placement.board)}", found, expected)
        if not placement.cores:
            yield Mistake(where, "it has no core", "an MPI process needs one to run on")
