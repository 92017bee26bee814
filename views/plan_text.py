"""A build and its plan as tables and lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rankslice.backend.runtime.job import ALL, Tensor
from rankslice.framework.plan import Plan, WireConversion
from rankslice.framework.wording import bare, bytes_text, digits, first_of, joined
from rankslice.session.building.build import Build
from rankslice.session.survival import Survival, fallback_lines
from rankslice.views.content import Table
from rankslice.views.inspection import shape_text

_MAX_BOUNDS = 12
_ORIGINS = {
    "--at-most": "by --at-most",
    "frames": "seen on the representative frames, with a margin",
    "model": "by the model",
}
_COLUMNS = ("rank", "key", "frames", "segments", "layers", "receives", "sends")


def build_parts(build: Build) -> Iterator[Table | str]:
    """Yield the plan of a build, what it was given, and what was written."""
    yield from plan_parts(build.plan)
    yield from (f"weights: {weights}" for weights in build.weights)
    bounds = [
        f"at most: {bare(tensor.name)} {shape_text(tensor, full=False)} ({_ORIGINS[origin]})"
        for tensor, origin in build.bounds
    ]
    yield from first_of(bounds, _MAX_BOUNDS, "... and {} more tensors of open sizes")
    if build.survival is not None:
        yield from fallback_lines(Survival(build.folder, build.survival))
    yield f"written to {build.folder!s}"


def plan_parts(plan: Plan) -> Iterator[Table | str]:
    """Yield a summary of a plan, and for each route a table of the ranks."""
    usual, *surges = plan.routes
    yield f"{bare(plan.model.name)}: ranks: {len(plan.ranks)}; {_counts(usual)}"
    yield f"frames enter at rank {plan.job.source}, results come out at rank {plan.job.sink}"
    yield _table(usual)
    yield from first_of(
        [_conversion(one) for one in plan.conversions], _MAX_BOUNDS, "... and {} more conversions"
    )
    for surge in surges:
        yield f"for a surge: {_counts(surge)}"
        yield _table(surge)


def _conversion(conversion: WireConversion) -> str:
    error = "error not measured, give --representative"
    if conversion.max_error is not None:
        error = f"error at most {digits(conversion.max_error)}"
        if conversion.value_range:
            error += f", {conversion.max_error / conversion.value_range:.2g} of its range"
        error += ", on the representative frames"
    return f"{bare(conversion.tensor)} is sent as {conversion.dtype}: {error}"


def _counts(route: Plan) -> str:
    count = "the fewest possible" if route.minimal else "perhaps not the fewest possible"
    kinds = Counter(c.compress for c in route.channels if c.compress != "none")
    compressed = [f"{number} compressed by {kind}" for kind, number in kinds.items()]
    return (
        f"segments: {len(route.segments)} ({count}); channels: {len(route.channels)}"
        f"{f' ({joined(compressed)})' if kinds else ''}; window: {route.job.window}"
    )


def _table(route: Plan) -> Table:
    """Return a row per rank; without ranks in turn the column of the frames is left out."""
    rows: list[tuple[str, ...]] = [_COLUMNS, *_rows(route)]
    if all(rank.turns == ALL for rank in route.ranks):
        rows = [(*row[:2], *row[3:]) for row in rows]
    return Table("", rows[0], tuple(rows[1:]))


def _rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    tensors = plan.job.tensors
    for rank, placement in enumerate(plan.ranks):
        segments = plan.of_rank(rank)
        if not segments and rank not in (plan.job.source, plan.job.sink):
            continue
        yield (
            str(rank),
            bare(placement.key),
            str(placement.turns),
            str(len(segments)),
            str(sum(len(segment.layers) for segment in segments)),
            _traffic(tensors[c.tensor] for c in plan.channels if c.destination == rank),
            _traffic(tensors[c.tensor] for c in plan.channels if c.source == rank),
        )


def _traffic(carried: Iterable[Tensor]) -> str:
    """Return number and size of the tensors: ``3 tensors, 1.2 MB``, or ``<=1.2 MB``."""
    tensors = list(carried)
    if not tensors:
        return "-"
    at_most = "<=" * any(tensor.is_open for tensor in tensors)
    size = bytes_text(sum(tensor.nbytes for tensor in tensors))
    return f"{len(tensors)} tensor{'s'[: len(tensors) > 1]}, {at_most}{size}"
