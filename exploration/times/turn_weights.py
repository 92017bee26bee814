"""Weights of ranks in turn, from what a profile says about their layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rankslice.exploration.times.segment_times import KnownTimes, segment_times
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.mapping import Mapping, Placements
from rankslice.framework.plan import Plan
from rankslice.framework.specs.keys import lacks_weights
from rankslice.framework.weighted_turns import by_weights, weights_for
from rankslice.framework.wording import bare, digits, joined


@dataclass(frozen=True, slots=True)
class ChosenWeights:
    """Weights that were chosen for an entry of a mapping that names none."""

    keys: tuple[str, ...]
    """Of its ranks."""
    weights: tuple[int, ...]
    """By rank."""
    seconds: tuple[float, ...]
    """By rank: what its layers take for a frame."""
    source: str
    """Name of the file that says so."""

    def __str__(self) -> str:
        """Return them as a mapping would name them, and why: on one line."""
        named = "|".join(
            f"{bare(key)}*{weight}" for key, weight in zip(self.keys, self.weights, strict=True)
        )
        times = joined([digits(1e3 * seconds) for seconds in self.seconds])
        return f"{named} ({times} ms a frame, by {self.source})"

    @property
    def warning(self) -> str:
        """Say that the fastest rank alone would handle more frames; empty: it would not."""
        longest = max(w * s for w, s in zip(self.weights, self.seconds, strict=True))
        fastest = min(self.seconds)
        if longest <= fastest * sum(self.weights):
            return ""
        key = bare(self.keys[self.seconds.index(fastest)])
        return f"{key} alone would handle more frames than in turn with slower ones: {self}"


def unweighted(mapping: Mapping) -> tuple[int, ...]:
    """Return the numbers of the entries that name ranks in turn and no weights."""
    return tuple(n for n, entry in enumerate(mapping.entries) if lacks_weights(entry.key))


def weigh(
    mapping: Mapping, placements: Placements, plan: Plan, times: KnownTimes, source: str
) -> tuple[Placements, tuple[ChosenWeights, ...]]:
    """Return placements whose ranks take turns in proportion to their rates, and the weights.

    Entries that name a weight keep theirs.

    Raises:
        RankSliceError: an accelerator or a layer of such an entry was not profiled, or cannot run.
    """
    groups = [placements.ranks_of(entry) for entry in unweighted(mapping)]
    wanted = {rank for group in groups for rank in group}
    part = plan.with_ranks(
        [rank if rank.rank in wanted else replace(rank, runs=()) for rank in plan.ranks]
    )
    try:
        segment_seconds = segment_times(part, times, source)
    except RankSliceError as error:
        raise RankSliceError(*_with_hint(error)) from None
    seconds: dict[int, float] = defaultdict(float)
    for segment, time in zip(part.segments, segment_seconds, strict=True):
        seconds[segment.rank] += time.seconds
    ranks = list(placements.ranks)
    chosen = []
    for group in groups:
        taken = tuple(seconds[rank] for rank in group)
        weights = weights_for(taken)
        for rank, turns in zip(group, by_weights(weights), strict=True):
            ranks[rank] = replace(ranks[rank], turns=turns)
        keys = tuple(ranks[rank].key for rank in group)
        chosen.append(ChosenWeights(keys, weights, taken, source))
    return replace(placements, ranks=tuple(ranks)), tuple(chosen)


def _with_hint(error: RankSliceError) -> Iterator[Mistake | str]:
    """Yield mistakes that also say how to do without a profile."""
    for mistake in error.mistakes:
        if isinstance(mistake, Mistake):
            hint = "or name weights in the mapping, such as edge01_gpu*2|edge02_gpu*1"
            mistake = replace(mistake, expected=f"{mistake.expected}, {hint}")
        yield mistake
