"""Whether boards have the memory that a job needs at least, for all of its routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rankslice.backend.runtime.job import Job, Rank
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.slots import ring_bytes
from rankslice.backend.runtime.pipeline.wiring import NO_PAIRS, pairs_within_boards, wire_all
from rankslice.framework.engines import computes
from rankslice.framework.errors import Mistake


def least_memory(job: Job, folder: Path, options: RunOptions) -> dict[str, tuple[int, ...]]:
    """Return the bytes that each board needs at least for each of the job's routes.

    These are the slots of its ranks, and the sub-models that they load into its memory: those of
    GPUs and NPUs may lie elsewhere, so they do not count. Engines need more.
    """
    found = {rank.board: [0] * len(job.routes) for rank in job.ranks}
    for number, route in enumerate(job.routes):
        pairs = pairs_within_boards(route) if options.direct else NO_PAIRS
        for rank, wiring in zip(route.ranks, wire_all(route, options.window, pairs), strict=True):
            found[rank.board][number] += sum(
                ring_bytes(ring.tensor, ring.depth) for ring in wiring.rings if ring.home is None
            )
        for segment in route.segments:
            rank = route.ranks[segment.rank]
            if _holds_weights(rank):
                found[rank.board][number] += _file_bytes(folder / segment.file)
    return {board: tuple(amounts) for board, amounts in found.items()}


def _holds_weights(rank: Rank) -> bool:
    return rank.accelerator == "cpu" and computes(rank.engine)


def _file_bytes(path: Path) -> int:
    """Return the size of a sub-model, with the file of weights beside it."""
    files = (path, path.with_name(f"{path.name}.data"))
    return sum(file.stat().st_size for file in files if file.is_file())


def too_little_memory(
    needed: Mapping[str, tuple[int, ...]], free: Mapping[str, int | None]
) -> Iterator[Mistake]:
    """Yield the places that have less memory than a job certainly needs there.

    Args:
        needed: bytes by place, for each route.
        free: bytes of memory and swap that programs can get there; ``None``: unknown.
    """
    for place, amounts in needed.items():
        has = free[place]
        if has is None or sum(amounts) <= has:
            continue
        found = f"needs {_mb(sum(amounts))} or more for weights and slots"
        expected = "give it fewer layers, run with a smaller --window, or end other programs there"
        if len(amounts) > 1:
            normal, surge = amounts
            found += f" of both routes ({_mb(normal)} for normal, {_mb(surge)} for surge)"
            expected += "; without --surge it needs those of one route"
        yield Mistake(place, f"{found}, and has {_mb(has)} free", expected)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
