"""Times of a plan's segments according to a profile, and weights of ranks in turn that follow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Rank
from rankslice.exploration.times.span_times import KindTimes, kind_times
from rankslice.framework.engines import computes
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.mapping import Mapping as LayerMapping, Placements
from rankslice.framework.plan import Plan
from rankslice.framework.profile import Profile, ProfiledKind
from rankslice.framework.specs.keys import lacks_weights
from rankslice.framework.weighted_turns import by_weights, weights_for
from rankslice.framework.wording import bare, digits, joined, listed, quoted


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """How long a segment computes for each frame."""

    seconds: float
    samples: NDArray[np.float64]
    """Measured times over their median: how they scatter. Of this segment if it was measured, else
    of the longest span that was measured of its accelerator; one 1 where none was."""
    source: str
    """Where it is from."""


_STEADY = np.ones(1)


class KnownTimes:
    """Times of all spans on each kind of a profile, worked out when they are first asked for."""

    def __init__(self, profile: Profile | None) -> None:
        self.profile = profile
        self._known: dict[str, KindTimes] = {}

    def of(self, kind: ProfiledKind) -> KindTimes:
        assert self.profile is not None
        if kind.key not in self._known:
            self._known[kind.key] = kind_times(kind, len(self.profile.model.layers))
        return self._known[kind.key]


def segment_times(plan: Plan, times: KnownTimes, source: str) -> tuple[SegmentTime, ...]:
    """Return the times of a plan's segments.

    Ranks of the ``null`` engine sleep as long as the plan says; the others take what a profile
    tells of their layers. A part of a layer takes its share of the time of the whole layer.

    Raises:
        RankSliceError: an accelerator or a layer was not profiled, or an accelerator cannot run
            its layers. All mistakes at once.
    """
    profile = times.profile
    ranks = (plan.ranks[number] for number in sorted({segment.rank for segment in plan.segments}))
    kinds = {rank.rank: _kind(profile, rank) for rank in ranks if slept_s(rank) is None}
    raise_mistakes(_unknown(plan, kinds, profile, source))
    known = {rank: kind for rank, kind in kinds.items() if kind is not None}
    layers = profile.model.layers if profile is not None else ()
    position = {name: index for index, name in enumerate(layers)}
    by_segment = []
    for segment in plan.segments:
        sleep = slept_s(plan.ranks[segment.rank])
        if sleep is not None:
            by_segment.append(SegmentTime(sleep, _STEADY, "plan.json: it sleeps"))
            continue
        kind = known[segment.rank]
        # What cuts, joins and adds tensors takes no measured time, and none is counted.
        of_model = plan.models_layers(segment.layers).items()
        shares = {position[name]: share for name, share in of_model if name in position}
        by_segment.append(_segment_time(kind, times.of(kind), shares, source))
    raise_mistakes(_impossible(plan, by_segment, source))
    return tuple(by_segment)


def slept_s(rank: Rank) -> float | None:
    """Return how long each segment of a rank sleeps instead of computing; ``None``: it computes."""
    if computes(rank.engine):
        return None
    try:
        return float(dict(rank.options).get("sleep_ms", "0")) / 1e3
    except ValueError:
        return 0.0


def _kind(profile: Profile | None, rank: Rank) -> ProfiledKind | None:
    if profile is None:
        return None
    key, _, sharer = rank.key.rpartition(".")
    whole = key if sharer.isdigit() and key else rank.key
    return profile.kind_of(whole) or profile.kind_of(whole.partition("@")[0])


def _unknown(
    plan: Plan, kinds: Mapping[int, ProfiledKind | None], profile: Profile | None, source: str
) -> Iterator[Mistake]:
    known = [key for kind in (profile.kinds if profile is not None else ()) for key in kind.keys]
    for number, kind in kinds.items():
        key = plan.ranks[number].key
        if kind is None and profile is None:
            yield Mistake(
                f"rank {number}, key {quoted(key)}",
                "the times of its layers are unknown",
                "give --profile, a file that `rankslice profile` made",
            )
        elif kind is None:
            expected = nearest(key, known) or f"it has {listed(known)}; profile this one, too"
            yield Mistake(source, f"the accelerator {quoted(key)} was not measured", expected)


def _segment_time(
    kind: ProfiledKind, times: KindTimes, shares: Mapping[int, float], source: str
) -> SegmentTime:
    seconds = parts_s(times.layer_s, times.table, shares)
    runs = _runs(shares)
    spans = {(span.first, span.last): span for span in kind.spans if span.samples_ns}
    is_whole = len(runs) == 1 and all(share == 1 for share in shares.values())
    own = spans.get((runs[0][0], runs[0][-1])) if is_whole else None
    if own is not None:
        return SegmentTime(seconds, _scatter(own.samples_ns), f"{source}: measured")
    longest = max(spans.values(), key=lambda s: s.last - s.first, default=None)
    scatter = _STEADY if longest is None else _scatter(longest.samples_ns)
    return SegmentTime(seconds, scatter, f"{source}: estimated")


def parts_s(
    layer_s: NDArray[np.float64], spans_s: NDArray[np.float64], shares: Mapping[int, float]
) -> float:
    """Return how long parts of layers take together, in seconds.

    Args:
        layer_s: (layers,): each of the model's layers within a slice, in seconds.
        spans_s: (layers, layers): all spans of them, by first and last layer, in seconds.
        shares: by layer: how much of it there is.
    """
    return sum(
        _share(layer_s, run, shares) * float(spans_s[run[0], run[-1]]) for run in _runs(shares)
    )


def _runs(layers: Iterable[int]) -> list[list[int]]:
    """Return the layers, those that follow each other together."""
    numbered = enumerate(sorted(layers))
    return [
        [layer for _, layer in run]
        for _, run in itertools.groupby(numbered, key=lambda pair: pair[1] - pair[0])
    ]


def _share(layer_s: NDArray[np.float64], layers: list[int], shares: Mapping[int, float]) -> float:
    """Return how much of the time of consecutive layers their parts take."""
    seconds = layer_s[layers]
    weights = seconds if np.isfinite(seconds).all() and seconds.any() else None
    return float(np.average([shares[layer] for layer in layers], weights=weights))


def _scatter(samples_ns: tuple[int, ...]) -> NDArray[np.float64]:
    samples = np.array(samples_ns, np.float64)
    return samples / np.median(samples)


def _impossible(plan: Plan, times: list[SegmentTime], source: str) -> Iterator[Mistake]:
    for segment, time in zip(plan.segments, times, strict=True):
        if not np.isfinite(time.seconds):
            rank = plan.ranks[segment.rank]
            found = f"{rank.key} could not run some of {listed(segment.layers)}"
            yield Mistake(source, found, "give these layers to another accelerator")


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


def unweighted(mapping: LayerMapping) -> tuple[int, ...]:
    """Return the numbers of the entries that name ranks in turn and no weights."""
    return tuple(n for n, entry in enumerate(mapping.entries) if lacks_weights(entry.key))


def weigh(
    mapping: LayerMapping, placements: Placements, plan: Plan, times: KnownTimes, source: str
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
