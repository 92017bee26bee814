"""Strategies: ways to divide the work of a frame, compared.

Pipelines are what the other searches find. Here, the whole model is given to accelerators in turn,
and layers are split. The first layers of a network make large tensors with few weights: they are
split by rows in blocks, where each part computes the rows around its edges itself (Zhao et al.,
"DeepThings", IEEE TCAD 37(11), 2018). Between two blocks, each part gets from the others only the
rows that it needs. Fully connected layers have large weights and small tensors: they are split by
outputs. Layers between them stay on the fastest accelerator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from rankslice.exploration.cost.prediction import Prediction, predict
from rankslice.exploration.cost.timing import message_costs
from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.devices import Team
from rankslice.exploration.problem.problem import Problem, explored_layers, layer_texts
from rankslice.exploration.problem.runtime_costs import LinkSpeeds
from rankslice.exploration.problem.split_problem import SplitMapping, Splitter
from rankslice.exploration.results.candidates import (
    Candidate,
    Failure,
    Strategy,
    numbered,
    predicted_candidate,
    split_candidate,
)
from rankslice.exploration.results.front import Floats, nondominated
from rankslice.exploration.search.methods import SearchResult
from rankslice.exploration.search.planned import crossing_bytes, without_shared_cores
from rankslice.exploration.search.seeds import balanced_seeds, planned_seeds
from rankslice.exploration.search.space import scorer
from rankslice.exploration.search.trials import try_out
from rankslice.exploration.simulator.simulator import simulate
from rankslice.exploration.times.segment_times import parts_s
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Layer
from rankslice.framework.mapping import LayerPart, Mapping, MappingEntry
from rankslice.framework.plan import ModelInfo
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.weighted_turns import weights_for
from rankslice.framework.wording import listed
from rankslice.frontend.formats import format_of
from rankslice.frontend.plan.make_plan import make_plan

_MAX_PLACES = 24
"""Where a block of rows may end: of more places so many are tried, spread over all."""

_MAX_CONNECTED = 4
"""Fully connected layers of which all stretches are tried: the first ones."""

_FRAMES = 3
"""To simulate, each alone: they are alike."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive layers that are split, and how."""

    by: str
    first: int
    last: int
    shares: tuple[float, ...]
    """By device."""


Stretches: TypeAlias = tuple[Stretch, ...]


@dataclass(frozen=True)
class SplitSearch:
    """Mappings that split layers."""

    splitter: Splitter
    refusals: list[str] = field(default_factory=list)
    """Why mappings that were tried are none; first that they do not fit."""

    @cached_property
    def problem(self) -> Problem:
        return self.splitter.problem

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        return explored_layers(self.splitter.model.graph)

    def candidates(self) -> Iterator[Candidate]:
        """Yield those with rows, with outputs, and with both."""
        for devices in self.groups():
            rows = self._tried(devices, self._rows(devices))
            outputs = self._tried(devices, self._outputs(devices))
            best = _best(rows, "latency", "throughput"), _best(outputs, "latency", "memory")
            both = (one + other for one, other in itertools.product(*best))
            for tried in (rows, outputs, self._tried(devices, both)):
                yield from tried.values()

    def groups(self) -> Iterator[tuple[int, ...]]:
        """Yield devices that may share layers: the two fastest, the three fastest, and so on.

        No two of them share a core.
        """
        order = np.argsort(self._whole_s, kind="stable")
        able = order[np.isfinite(self._whole_s[order])].tolist()
        chosen = without_shared_cores(self.problem, able)
        return (tuple(chosen[:count]) for count in range(2, len(chosen) + 1))

    @cached_property
    def _whole_s(self) -> Floats:
        """(devices,): how long each takes for the whole model."""
        whole_s: Floats = self.problem.spans_s[self.problem.device_kinds, 0, -1]
        return whole_s

    def gathering_places(self) -> list[int]:
        """Return behind which layers rows may be gathered, as indices of layers.

        A single tensor crosses there. Of neighbouring places with tensors of one size, these are
        the first, if the tensors before were larger, and the last.
        """
        # Two for an input that is read later, as it does not come from a part.
        count = self._crossing(np.where(self.problem.is_input, 2.0, 1.0))
        nbytes = self._crossing(self.problem.tensor_bytes)
        places = np.flatnonzero((count == 1) & np.isfinite(nbytes))
        sizes = nbytes[places]
        shrinks = np.append(False, sizes[1:] < sizes[:-1])
        changes = np.append(sizes[1:] != sizes[:-1], True)
        chosen = places[shrinks | changes]
        if len(chosen) > _MAX_PLACES:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _MAX_PLACES).round().astype(int)]
        return [int(place) for place in chosen]

    def _crossing(self, sizes: Floats) -> Floats:
        """Return (layers,): what crosses behind each layer; behind the last one, the outputs.

        ``sizes``: of each tensor.
        """
        return np.append(crossing_bytes(self.problem, sizes), sizes[self.problem.is_output].sum())

    def _rows(self, devices: Sequence[int]) -> Iterator[Stretches]:
        entering = self.problem.tensor_bytes[self.problem.is_input].sum()
        for ends in self.block_ends(devices):
            bytes_of_all = entering + self._leaving[ends[-1]]
            for shares in self.shares(devices, 0, ends[-1], bytes_of_all):
                yield tuple(
                    Stretch("rows", before + 1, end, shares)
                    for before, end in itertools.pairwise((-1, *ends))
                )

    def block_ends(self, devices: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield where blocks of rows end, up to each of the places: the cheapest way to get there.

        More blocks compute fewer rows twice, but between two of them the parts wait for each other.
        A frame takes the sum of the slowest parts of its blocks.
        """
        least: dict[int, tuple[float, tuple[int, ...]]] = {-1: (0.0, ())}
        parts: dict[int, list[dict[int, float]]] = {}
        for end in self.gathering_places():
            by_speed = next(self.shares(devices, 0, end), None)
            if by_speed is not None:
                stretch = Stretch("rows", 0, end, by_speed)
                try:
                    parts[end] = self.splitter.parts(self.mapping(devices, [stretch]))
                except RankSliceError as error:
                    self.refusals.append(str(error.mistakes[0]))
            if end in parts:
                least[end] = min(
                    (so_far_s + self._block_s(devices, parts, before, end), (*ends, end))
                    for before, (so_far_s, ends) in least.items()
                )
                yield least[end][1]

    def _block_s(
        self,
        devices: Sequence[int],
        parts: dict[int, list[dict[int, float]]],
        before: int,
        end: int,
    ) -> float:
        """Return how long a block takes, with what its parts need of the block before.

        What a part computes of a layer depends only on where its block ends: so the parts of the
        block from the first layer tell those of all blocks that end there.
        """
        problem = self.problem
        seconds = []
        for number, (device, part) in enumerate(zip(devices, parts[end], strict=True)):
            kind = problem.devices[device].kind
            own = {layer: share for layer, share in part.items() if before < layer <= end}
            part_s = parts_s(problem.times_s[kind], problem.spans_s[kind], own)
            if before >= 0:
                own_before = parts[before][number].get(before, 0.0)
                missing = max(part.get(before, 0.0) - own_before, 0.0)
                byte_s, hop_s = (figures.max() for figures in self._links(devices, number))
                part_s += hop_s + missing * self._leaving[before] * byte_s
                part_s += problem.overheads.slice_s
            seconds.append(part_s)
        return max(seconds)

    def _links(self, devices: Sequence[int], number: int = 0) -> tuple[Floats, Floats]:
        """Return what a byte and a message take between one of the devices and each, in seconds."""
        problem, overheads = self.problem, self.problem.overheads
        boards = problem.device_boards[[*devices]]
        ends = boards[number], boards
        is_local = boards == boards[number]
        costs = message_costs(
            np.ones(len(boards)),
            problem.wire_shares[ends],
            problem.bandwidth_bytes_s[ends],
            problem.latency_s[ends],
            is_local,
            overheads,
        )
        hop_s = costs.latency_s + ~is_local * 2 * overheads.message_s
        return costs.link_s + 2 * costs.copy_s, hop_s

    @cached_property
    def _leaving(self) -> Floats:
        """(layers,): the bytes that each makes."""
        problem, made = self.problem, ~self.problem.is_input
        leaving = np.zeros(len(problem.layers))
        np.add.at(leaving, problem.home_layers[made], problem.tensor_bytes[made])
        return leaving

    def connected(self) -> list[int]:
        """Return the fully connected layers at the end, as indices: each weight is used once."""
        macs_of = format_of(self.splitter.model.graph).macs
        connected: list[int] = []
        for number, layer in enumerate(self._layers):
            weights = sum(math.prod(weight.shape) for weight in layer.weights)
            macs = macs_of(layer) or 0
            if macs > weights:
                connected = []
            elif macs:
                connected.append(number)
        return connected

    def _outputs(self, devices: Sequence[int]) -> Iterator[Stretches]:
        layers = self.connected()[:_MAX_CONNECTED]
        for first, last in itertools.combinations_with_replacement(layers, 2):
            entering = sum(tensor.nbytes or 0 for tensor in self._layers[first].inputs)
            for shares in self.shares(devices, first, last, self._leaving[last], entering):
                yield (Stretch("outputs", first, last, shares),)

    def shares(
        self,
        devices: Sequence[int],
        first: int,
        last: int,
        shared_bytes: float = 0.0,
        common_bytes: float = 0.0,
    ) -> Iterator[tuple[float, ...]]:
        """Yield shares of devices in layers: in proportion to their speed; so that all end at once.

        The latter gives less to those that are farther from the first, which has the whole tensors.

        Args:
            shared_bytes: what goes to all of them and back, each its share.
            common_bytes: what goes to each of them.
        """
        kinds = self.problem.device_kinds[[*devices]]
        compute_s = self.problem.spans_s[kinds, first, last]
        if not np.isfinite(compute_s).all():
            return
        yield _rounded(1 / compute_s)
        byte_s, hop_s = self._links(devices)
        each_s = compute_s + shared_bytes * byte_s
        fixed_s = 2 * hop_s + common_bytes * byte_s
        fixed_s[0] = 0.0
        end_s = (1 + (fixed_s / each_s).sum()) / (1 / each_s).sum()
        if (fixed_s < end_s).all():
            yield _rounded((end_s - fixed_s) / each_s)

    def _tried(
        self, devices: Sequence[int], choices: Iterable[Stretches]
    ) -> dict[Stretches, Candidate]:
        """Return what can run."""
        tried = {}
        for stretches in dict.fromkeys(choices):
            try:
                candidate = self.evaluated(self.mapping(devices, stretches))
            except RankSliceError as error:
                self.refusals.append(str(error.mistakes[0]))
                continue
            if candidate is None:
                self.refusals.insert(0, "the parts do not fit into the memory of the boards")
            else:
                tried[stretches] = candidate
        return tried

    def mapping(self, devices: Sequence[int], stretches: Sequence[Stretch]) -> Mapping:
        """Return a mapping of split stretches; the first device has all other layers."""
        numbers = np.zeros(len(self.problem.layers), np.int64)
        for number, stretch in enumerate(stretches, 1):
            numbers[stretch.first : stretch.last + 1] = number
        texts = layer_texts(self.problem, numbers.tolist())
        entries = []
        for place, device in enumerate(devices):
            parts = tuple(
                LayerPart(tuple(texts[number]), stretch.by, stretch.shares[place])
                for number, stretch in enumerate(stretches, 1)
            )
            whole = tuple(texts.get(0, ())) if place == 0 else ()
            entries.append(MappingEntry(self.problem.devices[device].key, parts + whole))
        return Mapping("mapping", tuple(entries))

    def evaluated(self, mapping: Mapping) -> Candidate | None:
        """Return a mapping with its figures; ``None``: it cannot run.

        Its latency is that of a simulated frame, as parts that are sent at once wait for each other
        on a link.

        Raises:
            RankSliceError: a stretch cannot be split.
        """
        split = self.splitter(mapping)
        prediction = predict(split.problem, split.assignment, split.blocks)
        most = {board.name: board.memory_bytes for board in self.problem.boards}
        sizes = ((board.memory_bytes, most[board.name]) for board in prediction.boards)
        has_room = all(limit is None or size <= limit for size, limit in sizes)
        if not has_room or not math.isfinite(prediction.bottleneck_s):
            return None
        candidate = split_candidate(split, prediction)
        figures = replace(candidate.figures[0], latency_s=self._alone_s(split, prediction))
        return replace(candidate, figures=(figures,))

    def _alone_s(self, split: SplitMapping, prediction: Prediction) -> float:
        """Return how long a frame takes that is alone, by the simulator."""
        platform, kinds = self.splitter.platform, self.problem.kinds
        placements = place_ranks(
            split.mapping, platform, share_cores=True, default_engine=kinds[0].engine
        )
        info = ModelInfo(self.problem.model, "", split.cut.graph.format)
        # What is read is left out, and slices count what a pipeline adds, as in predictions.
        overheads = replace(self.problem.overheads, read_s=0.0, read_s_per_byte=0.0, slice_s=0.0)
        simulation = simulate(
            make_plan(info, split.cut, placements.ranks),
            [np.array([segment.compute_s]) for segment in prediction.segments],
            LinkSpeeds(platform, converts=True),
            frames=_FRAMES,
            window=1,
            overheads=overheads,
        )
        return simulation.latency_ms["p50"] / 1e3

    def whole(self) -> Iterator[Candidate]:
        """Yield mappings that split no layers: the planner's, and the whole model in turn."""
        problem = self.problem
        teams = tuple(Team(g, weights_for(self._whole_s[[*g]].tolist())) for g in self.groups())
        made = replace(problem, teams=problem.teams + teams)
        numbers = len(problem.numbered) + np.arange(len(teams))
        in_turn = np.repeat(numbers[:, np.newaxis], len(problem.layers), axis=1)
        rows = np.concatenate([planned_seeds(problem), balanced_seeds(problem), in_turn])
        possible = rows[scorer(made, ("throughput",))(rows).excess <= 0]
        return (predicted_candidate(made, row) for row in possible)


def _rounded(shares: Floats) -> tuple[float, ...]:
    return tuple(round(float(share), 3) for share in shares / shares.max())


def _best(tried: dict[Stretches, Candidate], *objectives: str) -> list[Stretches]:
    """Return the best for each objective."""
    costs = [[*map(OBJECTIVES[name].cost_of, tried.values())] for name in objectives if tried]
    return [*dict.fromkeys([*tried][int(np.argmin(own))] for own in costs)]


def other_strategies(
    splitter: Splitter,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> list[Candidate]:
    """Return mappings that split layers, such with ranks in turn, and a few pipelines.

    Raises:
        RankSliceError: there is only one accelerator, or no layers can be split over several.
    """
    search, problem = SplitSearch(splitter), splitter.problem
    if not any(search.groups()):
        keys = listed([device.key for device in problem.devices])
        found = f"{problem.model} can run on {keys} alone, so its layers cannot be split"
        expected = "expected two accelerators without a common core: --per-core uses single cores"
        raise RankSliceError(Mistake("--splits", found, expected))
    candidates: list[Candidate] = []
    for candidate in itertools.chain(search.whole(), search.candidates()):
        candidates.append(candidate)
        on_progress("splitting layers", len(candidates), len(candidates) + 1)
    if not any(candidate.ways for candidate in candidates):
        reason = next(iter(search.refusals), "nowhere a single tensor crosses that could be split")
        found = f"no layers of {problem.model} can be split: {reason}"
        raise RankSliceError(Mistake("--splits", found, "explore it without --splits"))
    return candidates


def compared(
    result: SearchResult,
    others: Sequence[Candidate],
    objectives: Sequence[str],
    attempt: Callable[[Candidate], Candidate] | None = None,
) -> tuple[SearchResult, tuple[Strategy, ...]]:
    """Return mappings of all strategies: of those that are missing, the best by each objective.

    Args:
        result: what a search found without split layers.
        objectives: those of the front.
        attempt: simulates or runs a mapping and returns it with its figures added.
    """
    known = {candidate.strategy for candidate in result.candidates}
    best = _best_of_each(one for one in others if one.strategy not in known)
    chosen = {str(one.mapping): one for own in best.values() for one in own.values()}
    tried = [try_out(attempt, one) if attempt else one for one in chosen.values()]
    failures = [one for one in tried if isinstance(one, Failure)]
    kept = [*result.candidates, *(one for one in tried if isinstance(one, Candidate))]
    values = np.array([[OBJECTIVES[name].cost_of(c) for name in objectives] for c in kept])
    front = {*nondominated(values).tolist()}
    ranked = numbered(replace(c, on_front=place in front) for place, c in enumerate(kept))
    whole = replace(
        result,
        candidates=ranked,
        evaluations=result.evaluations + len(others),
        tried=result.tried + (len(tried) if attempt else 0),
        failures=(*result.failures, *failures),
    )
    return whole, tuple(_strategies(ranked))


def _best_of_each(candidates: Iterable[Candidate]) -> dict[str, dict[str, Candidate]]:
    """Return the best mapping of each strategy by each objective of which it has a value."""
    best: dict[str, dict[str, Candidate]] = {}
    for candidate in candidates:
        own = best.setdefault(candidate.strategy, {})
        for name, row in OBJECTIVES.items():
            if row.cost_of(candidate) < (row.cost_of(own[name]) if name in own else math.inf):
                own[name] = candidate
    return best


def _strategies(candidates: Sequence[Candidate]) -> Iterator[Strategy]:
    least = {name: min(map(row.cost_of, candidates)) for name, row in OBJECTIVES.items()}
    for strategy, best in _best_of_each(candidates).items():
        wins = (name for name, one in best.items() if OBJECTIVES[name].cost_of(one) <= least[name])
        yield Strategy(strategy, {name: one.number for name, one in best.items()}, tuple(wins))
