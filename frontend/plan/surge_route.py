"""Two ways of frames through the ranks of one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rankslice.backend.runtime.job import ALL, Rank, Route
from rankslice.framework.engines import other_engine
from rankslice.framework.errors import Mistake
from rankslice.framework.mapping import Placements
from rankslice.framework.plan import Plan, SegmentLayers
from rankslice.frontend.plan.make_plan import submodel_file


@dataclass(frozen=True, slots=True)
class JoinedRanks:
    """The ranks of two mappings; a key that is in both is one rank."""

    usual: tuple[Rank, ...]
    """All ranks, with their turns on the usual route."""
    surge: tuple[Rank, ...]
    """All ranks, with their turns on the route for a surge."""
    number: tuple[int, ...]
    """Of each rank of the mapping for a surge."""
    warnings: tuple[str, ...] = ()

    @property
    def idle(self) -> frozenset[int]:
        return frozenset(range(len(self.surge))).difference(self.number)


def join_ranks(usual: Placements, surge: Placements) -> JoinedRanks:
    """Return the ranks of two mappings, those of the usual one first.

    Ranks of both may have the same cores, as frames are on one route at a time. The core that
    drives a GPU or NPU of both is one that no other rank of either has, if there is one.
    """
    there, warnings = _with_one_core(usual.ranks, surge.ranks)
    number = {rank.key: rank.rank for rank in there}
    added = [rank for rank in surge.ranks if rank.key not in number]
    number |= {rank.key: len(there) + at for at, rank in enumerate(added)}
    turns = {rank.key: rank.turns for rank in surge.ranks}
    everyone = [*there, *(replace(rank, rank=number[rank.key], turns=ALL) for rank in added)]
    users = Counter((rank.board, core) for rank in everyone for core in rank.cores)
    ranks = tuple(
        replace(rank, shared=any(users[rank.board, core] > 1 for core in rank.cores))
        for rank in everyone
    )
    return JoinedRanks(
        ranks,
        tuple(replace(rank, turns=turns.get(rank.key, ALL)) for rank in ranks),
        tuple(number[rank.key] for rank in surge.ranks),
        warnings,
    )


def _with_one_core(
    usual: Sequence[Rank], surge: Sequence[Rank]
) -> tuple[list[Rank], tuple[str, ...]]:
    """Return the usual ranks with cores that suit both routes, and where none does.

    A key has the same place in both mappings, but for the core that drives a GPU or NPU: each
    mapping has it on one that no other of its own ranks has.
    """
    ranks, others = list(usual), {rank.key: rank for rank in surge}
    warnings = []
    for at, rank in enumerate(ranks):
        other = others.get(rank.key, rank)
        if other.cores != rank.cores and not _has_rival(other, ranks):
            ranks[at] = replace(rank, cores=other.cores)
        elif other.cores != rank.cores:
            others[rank.key] = replace(other, cores=rank.cores)
            if _has_rival(rank, others.values()):
                found = f"core {rank.cores[0]} drives it, and another rank has it in a surge"
                expected = f"name a core that is free on both routes, as in {rank.accelerator}@4"
                warnings.append(str(Mistake(rank.key, found, expected)))
    return ranks, tuple(warnings)


def _has_rival(rank: Rank, others: Iterable[Rank]) -> bool:
    return any(
        other.key != rank.key and other.board == rank.board and {*other.cores} & {*rank.cores}
        for other in others
    )


def with_surge(plan: Plan, ranks: Sequence[Rank], surge: Plan) -> Plan:
    """Return a plan with a second route, whose ranks are these with their turns there."""
    job, other = plan.job, surge.job
    joined, files = [], {}
    for rank, way in zip(ranks, other.ranks, strict=True):
        usual = job.ranks[rank.rank] if rank.rank < len(job.ranks) else Route()
        runs = []
        for index, segment in enumerate(way.runs, len(usual.runs)):
            suffix = segment.file.rpartition(".")[2]
            file = submodel_file(rank.key, index, suffix)
            files[segment.file] = file
            is_of_part = suffix != plan.model.format
            engine = other_engine(rank.engine, suffix) if is_of_part else ""
            runs.append(replace(segment, file=file, engine=engine))
        route = Route(way.turns, way.receives, tuple(runs), way.sends)
        joined.append(
            replace(
                rank,
                receives=usual.receives,
                runs=usual.runs,
                sends=usual.sends,
                surge=route,
            )
        )
    ends = {tensor.name for tensor in (*job.inputs, *job.outputs)}
    between = {
        entry.name: entry for entry in (*job.between, *other.between) if entry.name not in ends
    }
    return replace(
        plan,
        job=replace(
            job,
            ranks=tuple(joined),
            between=tuple(between.values()),
            surge_window=other.window,
        ),
        layers=(
            *plan.layers,
            *(SegmentLayers(files[entry.file], entry.layers) for entry in surge.layers),
        ),
        surge_minimal=surge.minimal,
    )
