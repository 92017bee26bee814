"""Two ways of frames through the ranks of one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankslice.framework.mapping import Placement, Placements
from rankslice.framework.plan import Plan, Route
from rankslice.framework.turns import ALL
from rankslice.frontend.plan.make_plan import submodel_file


@dataclass(frozen=True, slots=True)
class JoinedRanks:
    """The ranks of two mappings; a key that is in both is one rank."""

    usual: tuple[Placement, ...]
    """All ranks, with their turns on the usual route."""
    surge: tuple[Placement, ...]
    """All ranks, with their turns on the route for a surge."""
    number: tuple[int, ...]
    """Of each rank of the mapping for a surge."""

    @property
    def idle(self) -> frozenset[int]:
        """The ranks that are not on the route for a surge."""
        return frozenset(range(len(self.surge))).difference(self.number)


def join_ranks(usual: Placements, surge: Placements) -> JoinedRanks:
    """Return the ranks of two mappings, those of the usual one first.

    Ranks of both may have the same cores, as frames are on one route at a time.
    """
    number = {rank.key: rank.rank for rank in usual.ranks}
    added = [rank for rank in surge.ranks if rank.key not in number]
    number |= {rank.key: len(usual.ranks) + at for at, rank in enumerate(added)}
    turns = {rank.key: rank.turns for rank in surge.ranks}
    everyone = [*usual.ranks, *(replace(rank, rank=number[rank.key], turns=ALL) for rank in added)]
    users = Counter((rank.board, core) for rank in everyone for core in rank.cores)
    ranks = tuple(
        replace(rank, shared=any(users[rank.board, core] > 1 for core in rank.cores))
        for rank in everyone
    )
    return JoinedRanks(
        ranks,
        tuple(replace(rank, turns=turns.get(rank.key, ALL)) for rank in ranks),
        tuple(number[rank.key] for rank in surge.ranks),
    )


def with_surge(plan: Plan, ranks: Sequence[Placement], surge: Plan) -> Plan:
    """Return a plan with a second route.

    Args:
        plan: of the usual route.
        ranks: all ranks, with their turns on the usual route.
        surge: the plan of the other route, whose ranks are these with their turns there.
    """
    before = Counter(segment.rank for segment in plan.segments)
    segments = (
        replace(
            segment,
            index=(index := segment.index + before[segment.rank]),
            file=submodel_file(ranks[segment.rank].key, index, plan.model.format),
        )
        for segment in surge.segments
    )
    channels = (
        replace(channel, number=channel.number + len(plan.channels)) for channel in surge.channels
    )
    route = Route(
        turns=tuple(rank.turns for rank in surge.ranks),
        segments=tuple(segments),
        channels=tuple(channels),
        path_length=surge.path_length,
        minimal=surge.minimal,
    )
    tensors = {tensor.name: tensor for tensor in (*plan.tensors, *surge.tensors)}
    return replace(plan, ranks=tuple(ranks), tensors=tuple(tensors.values()), surge=route)
