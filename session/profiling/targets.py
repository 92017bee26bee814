"""What is profiled: kinds of accelerators, each on the board where it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankslice.backend.boards.accelerator import Greeting
from rankslice.backend.runtime.job import Rank
from rankslice.exploration.problem.devices import kinds_and_devices
from rankslice.framework.engines import default_engine, engines_for
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.mapping import Mapping as LayerMapping, MappingEntry
from rankslice.framework.platform import Platform
from rankslice.framework.profile import ProfiledKind
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.wording import joined, listed, quoted


@dataclass(frozen=True, slots=True)
class Target:
    rank: Rank
    keys: tuple[str, ...]
    """Of all accelerators of the kind."""
    neighbours: tuple[Rank, ...]
    """What computes at the same time on the same board."""


def find_targets(
    keys: Sequence[str], platform: Platform, formats: Sequence[str], *, alone: bool
) -> Iterator[Target]:
    if repeated := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise RankSliceError(Mistake("--accelerators", f"names {listed(repeated)} twice"))
    engine = default_engine(formats[0])
    mapping = LayerMapping("--accelerators", tuple(MappingEntry(key, ()) for key in keys))
    ranks = place_ranks(mapping, platform, share_cores=True, default_engine=engine).ranks
    raise_mistakes(
        Mistake(
            f"--accelerators: {rank.key}",
            f"its engine {quoted(rank.engine)} cannot run models of this format",
        )
        for rank in ranks
        if not any(rank.engine in engines_for(submodels) for submodels in formats)
    )
    kinds, devices = kinds_and_devices(keys, platform, default_engine=engine)
    for number, kind in enumerate(kinds):
        rank = next(rank for rank in ranks if rank.key == kind.key)
        yield Target(
            rank,
            tuple(device.key for device in devices if device.kind == number),
            tuple(other for other in ranks if not alone and _computes_beside(rank, other)),
        )


def alike_targets(
    targets: Iterable[Target], greetings: Iterable[Greeting]
) -> list[tuple[Target, Greeting]]:
    """Return the kinds, with cores of a board that it describes alike as one kind.

    They run the same engine with the same settings, as many at once, and the board tells the same
    of their model, capacity and clocks.
    """
    kinds: dict[object, tuple[Target, Greeting]] = {}
    for target, greeting in zip(targets, greetings, strict=True):
        rank = target.rank
        likeness: object = rank.key
        if rank.accelerator == "cpu":
            kinds_of_cores = dict(enumerate(greeting.core_kinds))
            cores = sorted(kinds_of_cores.get(core, str(core)) for core in rank.cores)
            settings = (rank.engine, rank.options, rank.environment, rank.allow_fallback)
            likeness = (rank.board, *settings, *cores, len(target.neighbours))
        first, first_greeting = kinds.get(likeness, (replace(target, keys=()), greeting))
        kinds[likeness] = replace(first, keys=(*first.keys, *target.keys)), first_greeting
    return [*kinds.values()]


def _computes_beside(rank: Rank, other: Rank) -> bool:
    if rank.key == other.key or rank.board != other.board:
        return False
    if "cpu" == rank.accelerator == other.accelerator:
        return set(rank.cores).isdisjoint(other.cores)
    return rank.accelerator != other.accelerator


def described(target: Target, greeting: Greeting) -> ProfiledKind:
    """Return a kind of accelerator as its board describes it, without spans."""
    rank = target.rank
    return ProfiledKind(
        key=rank.key,
        keys=target.keys,
        accelerator=rank.accelerator,
        threads=max(1, len(rank.cores)),
        engine=rank.engine,
        engine_version=greeting.engine_version,
        options=rank.options,
        environment=rank.environment,
        allow_fallback=rank.allow_fallback,
        neighbours=tuple(other.key for other in target.neighbours),
        rank_bytes=greeting.rank_bytes,
        board=greeting.board,
        spans=(),
    )


def changes(old: ProfiledKind, new: ProfiledKind) -> Iterator[str]:
    """Yield what has changed since a kind was measured, as clauses."""
    if old.engine_version != new.engine_version:
        yield f"it has {new.engine_version}, and had {old.engine_version}"
    settings = ("threads", "engine", "options", "environment", "allow_fallback")
    changed = [name for name in settings if getattr(old, name) != getattr(new, name)]
    if changed:
        yield f"{joined([name.replace('_', ' ') for name in changed])} changed"
    if old.neighbours != new.neighbours:
        yield "other accelerators compute at the same time"
    hardware = ("host", "machine", "processor", "memory_bytes")
    if any(getattr(old.board, name) != getattr(new.board, name) for name in hardware):
        yield f"the board is {new.board.host}, and was {old.board.host}"
    elif old.board.cores != new.board.cores:
        yield "the settings of its clocks changed"
