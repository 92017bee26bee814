"""Where each rank runs, from the mapping keys and the platform."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping as Dictionary, Sequence
from dataclasses import dataclass, replace

from rankslice.backend.runtime.job import Rank, Turns
from rankslice.framework.engines import ENGINES, USUAL_ENGINE
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.mapping import Mapping, Placements
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.framework.specs.core_lists import each_once, format_cores
from rankslice.framework.specs.keys import Key, parse_key, read_cores, split_turns
from rankslice.framework.wording import bare, joined, quoted


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one rank asks of its board."""

    key: Key
    where: str
    entry: int
    """Of the mapping."""
    turns: Turns
    board: Board
    cores: tuple[int, ...] = ()
    """Empty for a GPU or NPU whose host core is still to be chosen."""

    @property
    def number(self) -> int:
        return int(self.key.unit or 0)


def place_ranks(
    mapping: Mapping,
    platform: Platform,
    *,
    share_cores: bool = False,
    default_engine: str | Sequence[str] = USUAL_ENGINE,
) -> Placements:
    """Place each rank of the mapping: board, accelerator, cores and engine.

    A GPU or NPU rank whose key names no host core gets the lowest core of its board that no
    other rank has; if none is left, it shares one, with a warning.

    Args:
        mapping: Its entries have the ranks in their order; one of several keys has several ranks.
        default_engine: Engine of CPU ranks on boards whose platform names none; or by entry.
    """
    boards = {board.name: board for board in platform.boards}
    asked, mistakes = _asked(mapping, boards)
    mistakes += _unknown_boards([claim.key for claim in asked], mapping, platform)
    claims: list[_Claim] = []
    for claim in asked:
        if claim.key.board in boards:
            try:
                claims.append(replace(claim, cores=_cores(claim, platform)))
            except RankSliceError as error:
                mistakes += error.mistakes
    if not share_cores:
        mistakes += [*_repeated_cores(claims), *_clashes(claims)]
    raise_mistakes(mistakes)
    chosen, warnings = _with_host_cores(claims)
    engines = default_engine
    if isinstance(engines, str):
        engines = [engines] * len(mapping.entries)
    users = Counter((claim.board.name, core) for claim in chosen for core in set(claim.cores))
    return Placements(
        tuple(_rank(rank, claim, users, engines[claim.entry]) for rank, claim in enumerate(chosen)),
        (*warnings, *_mixing_warnings(chosen)),
        tuple(claim.entry for claim in chosen),
    )


_NOWHERE = Board("", "")
"""Of a key that names no board of the platform."""


def _asked(
    mapping: Mapping, boards: Dictionary[str, Board]
) -> tuple[list[_Claim], list[Mistake | str]]:
    claims: dict[str, _Claim] = {}
    mistakes: list[Mistake | str] = []
    times: Counter[str] = Counter()
    for number, entry in enumerate(mapping.entries):
        where = _where(mapping, entry.key)
        try:
            parts = split_turns(entry.key, where)
        except RankSliceError as error:
            mistakes += error.mistakes
            continue
        for text, turns in parts:
            try:
                key = parse_key(text, where, boards)
            except RankSliceError as error:
                mistakes += error.mistakes
                continue
            times[text] += 1
            board = boards.get(key.board, _NOWHERE)
            claims.setdefault(text, _Claim(key, _where(mapping, text), number, turns, board))
    for text, count in times.items():
        if count > 1:
            hint = f"give each rank its own key: {bare(text)}.2 shares what {bare(text)} names"
            mistakes.append(Mistake(_where(mapping, text), f"appears {count} times", hint))
    return [*claims.values()], mistakes


def _where(mapping: Mapping, key: str) -> str:
    return f"{mapping.name}: {bare(key)}"


def _unknown_boards(keys: list[Key], mapping: Mapping, platform: Platform) -> Iterator[Mistake]:
    known = [board.name for board in platform.boards]
    times = Counter(key.board for key in keys if key.board not in known)
    for board, count in times.items():
        first = next(key for key in keys if key.board == board)
        found = f"no board {quoted(board)} in {platform.name}"
        if count > 1:
            found += f" ({count} keys name it)"
        shown = [*known[:8], f"{len(known) - 8} more"] if len(known) > 9 else known
        expected = nearest(board, known) or f"it has {joined(shown)}"
        yield Mistake(_where(mapping, first.text), found, expected)


def _cores(claim: _Claim, platform: Platform) -> tuple[int, ...]:
    key, board, where = claim.key, claim.board, claim.where
    if key.kind == "cpu":
        cores = read_cores(key.unit, board.cores, where) if key.unit else board.known_cores
    else:
        _check_accelerator(key, board, where, platform.name)
        cores = () if key.host_core is None else (key.host_core,)
    if board.cores is not None and (lacking := tuple(sorted(set(cores) - set(board.cores)))):
        found = f"board {board.name} has no {format_cores(lacking)}"
        raise RankSliceError(Mistake(where, found, f"it has {format_cores(board.cores)}"))
    return cores


def _accelerators(kind: str, board: Board) -> tuple[Accelerator, ...]:
    return {"gpu": board.gpus, "npu": board.npus}.get(kind, ())


def _check_accelerator(key: Key, board: Board, where: str, file: str) -> None:
    count = len(_accelerators(key.kind, board))
    if int(key.unit or 0) < count:
        return
    if not count:
        found, expected = f"board {board.name} has no {key.kind.upper()}", f"{file} describes none"
    else:
        last = f"to {key.kind}{count - 1}" if count > 1 else "only"
        found = f"board {board.name} has no {key.kind}{key.unit}"
        expected = f"{file} describes {key.kind}0 {last}"
    raise RankSliceError(Mistake(where, found, expected))


def _repeated_cores(claims: list[_Claim]) -> Iterator[Mistake]:
    for claim in claims:
        try:
            each_once(claim.cores)
        except ValueError as error:
            yield Mistake(claim.where, str(error), "expected every core once")


def _clashes(claims: list[_Claim]) -> Iterator[Mistake]:
    expected = "give each rank its own, or allow sharing with --share-cores"
    owners: dict[tuple[str, str, int], str] = {}
    for claim in claims:
        key, board = claim.key, claim.board.name
        if key.sharer > 1:
            found = f"the suffix .{key.sharer} shares a resource between ranks"
            yield Mistake(claim.where, found, "allow that with --share-cores")
            continue
        things = [(board, "core", core) for core in claim.cores]
        if key.kind != "cpu":
            things.append((board, key.kind, claim.number))
        cores_of: dict[str, list[int]] = {}
        for thing in dict.fromkeys(things):
            owner = owners.setdefault(thing, key.text)
            if owner != key.text and thing[1] == "core":
                cores_of.setdefault(owner, []).append(thing[2])
            elif owner != key.text:
                found = f"the {key.kind.upper()} is in {bare(owner)} too"
                yield Mistake(claim.where, found, expected)
        for owner, cores in cores_of.items():
            verb = "is" if len(cores) == 1 else "are"
            found = f"{format_cores(tuple(cores))} {verb} in {bare(owner)} too"
            yield Mistake(claim.where, found, expected)


def _mixing_warnings(claims: list[_Claim]) -> Iterator[str]:
    for claim in claims:
        clusters = claim.board.clusters_of(claim.cores) if claim.key.kind == "cpu" else ()
        if len(clusters) > 1:
            names = joined([quoted(cluster.name) for cluster in clusters])
            found = f"{format_cores(claim.cores)} are of the clusters {names}"
            yield str(Mistake(claim.where, found, "a rank is as fast as the slowest of its cores"))


def _with_host_cores(claims: list[_Claim]) -> tuple[list[_Claim], list[str]]:
    users = Counter((claim.board.name, core) for claim in claims for core in set(claim.cores))
    chosen: list[_Claim] = []
    warnings: list[str] = []
    for claim in claims:
        if claim.cores:
            chosen.append(claim)
            continue
        name = claim.board.name
        cores = claim.board.cores or itertools.count()
        free = (core for core in cores if not users[name, core])
        core = next(free, None)
        if core is None:
            core = min(claim.board.known_cores, key=lambda core: (users[name, core], core))
            found = f"no core of board {name} is free to drive the {claim.key.kind.upper()}"
            expected = f"it shares core {core} with another rank; leave a core free to avoid that"
            warnings.append(str(Mistake(claim.where, found, expected)))
        users[name, core] += 1
        chosen.append(replace(claim, cores=(core,)))
    return chosen, warnings


def _rank(rank: int, claim: _Claim, users: Counter[tuple[str, int]], default_engine: str) -> Rank:
    board, kind = claim.board, claim.key.kind
    accelerators = _accelerators(kind, board)
    cpu = board.cpu or Accelerator(board.engine or default_engine)
    driver = accelerators[claim.number] if accelerators else cpu
    if not driver.engine:  # a GPU of which only the library, Vulkan or OpenCL, is known
        driver = Accelerator(default_engine, tuple(ENGINES[default_engine].any_gpu.items()))
    return Rank(
        rank=rank,
        key=claim.key.text,
        board=board.name,
        host=board.host,
        accelerator=f"{kind}{claim.number}" if len(accelerators) > 1 else kind,
        cores=tuple(sorted(set(claim.cores))),
        engine=driver.engine,
        options=driver.options,
        environment=driver.environment,
        allow_fallback=driver.allow_fallback,
        shared=any(users[board.name, core] > 1 for core in claim.cores),
        turns=claim.turns,
    )
