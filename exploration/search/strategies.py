"""Strategies: ways to divide the work of a frame, compared.

Pipelines are what the other searches find. Here, the whole model is given to accelerators in turn,
and layers are split. The first layers of a network make large tensors with few weights: they are
split by rows, each part computes the rows around its edges itself, and the parts are gathered
where that takes few bytes (Zhao et al., "DeepThings", IEEE TCAD 37(11), 2018). Fully connected
layers have large weights and small tensors: they are split by outputs. Layers between them stay on
the fastest accelerator. All choices are tried: where rows are gathered, which fully connected
layers are split, over how many accelerators, and with which shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.prediction import Prediction, predict
from rankslice.exploration.objectives import OBJECTIVES
from rankslice.exploration.problem.devices import Team
from rankslice.exploration.problem.problem import MODEL_INPUT, Problem, layer_texts
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
from rankslice.exploration.results.front import nondominated
from rankslice.exploration.simulator.simulator import simulate
from rankslice.framework.errors import InterruptedRunError, RankSliceError
from rankslice.framework.graph import Layer
from rankslice.framework.mapping import LayerPart, Mapping, MappingEntry
from rankslice.framework.plan import ModelInfo
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.weighted_turns import weights_for
from rankslice.frontend.formats import format_of
from rankslice.frontend.plan.make_plan import make_plan

_MAX_PLACES = 24
"""Where rows may be gathered: of more places so many are tried, spread over all."""

_MAX_CONNECTED = 4
"""Fully connected layers of which all stretches are tried: the first ones."""

_FRAMES = 3
"""To simulate, each alone: they are alike."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive layers that are split, and how."""

    by: str
    first: int
    last: int
    shares: tuple[float, ...]
    """By device."""


@dataclass(frozen=True, slots=True)
class _Tried:
    stretches: tuple[_Stretch, ...]
    candidate: Candidate


@dataclass(frozen=True)
class SplitSearch:
    """Mappings that split layers."""

    splitter: Splitter

    @cached_property
    def problem(self) -> Problem:
        return self.splitter.problem

    @cached_property
    def _layers(self) -> list[Layer]:
        assert self.problem.graph is not None
        by_name = {layer.name: layer for layer in self.problem.graph.layers}
        return [by_name[name] for name in self.problem.layers]

    def candidates(self) -> Iterator[Candidate]:
        """Yield those with rows, with outputs, and with both."""
        for devices in self.groups():
            rows, outputs = (
                [*self._tried(devices, ((stretch,) for stretch in stretches))]
                for stretches in (self._rows(devices), self._outputs(devices))
            )
            best = _best(rows, "latency", "throughput"), _best(outputs, "latency", "memory")
            both = (one.stretches + other.stretches for one, other in itertools.product(*best))
            for tried in (*rows, *outputs, *self._tried(devices, both)):
                yield tried.candidate

    def groups(self) -> Iterator[tuple[int, ...]]:
        """Yield devices that may share layers: the two fastest, the three fastest, and so on.

        No two of them share a core.
        """
        problem = self.problem
        whole_s = problem.spans_s[problem.device_kinds, 0, -1]
        chosen: list[int] = []
        taken: set[tuple[int, int]] = set()
        for device in np.argsort(whole_s, kind="stable").tolist():
            own = problem.devices[device]
            cores = {(own.board, core) for core in own.cores}
            if math.isfinite(whole_s[device]) and taken.isdisjoint(cores):
                chosen.append(device)
                taken |= cores
                if len(chosen) > 1:
                    yield tuple(chosen)

    def gathering_places(self) -> list[int]:
        """Return behind which layers rows may be gathered, as indices of layers.

        A single tensor crosses there. Of neighbouring places with tensors of one size, these are
        the first, if the tensors before were larger, and the last.
        """
        problem = self.problem
        crossing = np.zeros(len(problem.layers))
        nbytes = np.zeros(len(problem.layers))
        for tensor in problem.tensors:
            last = len(problem.layers) if tensor.is_output else max(tensor.readers)
            made = max(tensor.producer, 0)
            # Two for an input that is read later, as it does not come from a part.
            crossing[made:last] += 2 if tensor.producer == MODEL_INPUT else 1
            nbytes[made:last] += tensor.nbytes
        places = np.flatnonzero((crossing == 1) & np.isfinite(nbytes))
        sizes = nbytes[places]
        shrinks = np.append(False, sizes[1:] < sizes[:-1])
        changes = np.append(sizes[1:] != sizes[:-1], True)
        chosen = places[shrinks | changes]
        if len(chosen) > _MAX_PLACES:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _MAX_PLACES).round().astype(int)]
        return [int(place) for place in chosen]

    def _rows(self, devices: Sequence[int]) -> Iterator[_Stretch]:
        entering = sum(t.nbytes for t in self.problem.tensors if t.producer == MODEL_INPUT)
        leaving = {t.producer: t.nbytes for t in self.problem.tensors}
        for last in self.gathering_places():
            crossing = self.shares(devices, 0, last, entering + leaving.get(last, 0.0))
            yield from (_Stretch("rows", 0, last, shares) for shares in crossing)

    def connected(self) -> list[int]:
        """Return the fully connected layers at the end, as indices: each weight is used once."""
        assert self.problem.graph is not None
        macs_of = format_of(self.problem.graph).macs
        connected: list[int] = []
        for number, layer in enumerate(self._layers):
            weights = sum(math.prod(weight.shape) for weight in layer.weights)
            macs = macs_of(layer) or 0
            if macs > weights:
                connected = []
            elif macs:
                connected.append(number)
        return connected

    def _outputs(self, devices: Sequence[int]) -> Iterator[_Stretch]:
        layers = self.connected()[:_MAX_CONNECTED]
        for first, last in itertools.combinations_with_replacement(layers, 2):
            leaving = sum(tensor.nbytes or 0 for tensor in self._layers[last].outputs)
            entering = sum(tensor.nbytes or 0 for tensor in self._layers[first].inputs)
            for shares in self.shares(devices, first, last, leaving, entering):
                yield _Stretch("outputs", first, last, shares)

    def shares(
        self,
        devices: Sequence[int],
        first: int,
        last: int,
        shared_bytes: float,
        common_bytes: float = 0.0,
    ) -> Iterator[tuple[float, ...]]:
        """Yield shares of devices in layers: in proportion to their speed; so that all end at once.

        The latter gives less to those that are farther from the first, which has the whole tensors.

        Args:
            shared_bytes: what goes to all of them and back, each its share.
            common_bytes: what goes to each of them.
        """
        problem = self.problem
        kinds, boards = problem.device_kinds[[*devices]], problem.device_boards[[*devices]]
        compute_s = problem.spans_s[kinds, first, last]
        if not np.isfinite(compute_s).all():
            return
        yield _rounded(1 / compute_s)
        is_far = boards != boards[0]
        overheads = problem.overheads
        byte_s = 1 / problem.bandwidth_bytes_s[boards[0], boards] + 2 * overheads.network_s_per_byte
        hop_s = problem.latency_s[boards[0], boards] + 2 * overheads.message_s
        each_s = compute_s + is_far * shared_bytes * byte_s
        fixed_s = is_far * (2 * hop_s + common_bytes * byte_s)
        fixed_s += ~is_far * (problem.latency_s[boards[0], boards])
        fixed_s[0] = 0.0
        end_s = (1 + (fixed_s / each_s).sum()) / (1 / each_s).sum()
        if (fixed_s < end_s).all():
            yield _rounded((end_s - fixed_s) / each_s)

    def _tried(
        self, devices: Sequence[int], choices: Iterable[tuple[_Stretch, ...]]
    ) -> Iterator[_Tried]:
        """Yield what can run."""
        for stretches in dict.fromkeys(choices):
            try:
                candidate = self.evaluated(self.mapping(devices, stretches))
            except RankSliceError:
                continue
            if candidate is not None:
                yield _Tried(stretches, candidate)

    def mapping(self, devices: Sequence[int], stretches: Sequence[_Stretch]) -> Mapping:
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
        """Return a mapping with its figures; ``None``: it cannot run, or not all layers are split.

        Its latency is that of a simulated frame, as parts that are sent at once wait for each other
        on a link.

        Raises:
            RankSliceError: nothing of a stretch can be split.
        """
        split = self.splitter(mapping)
        prediction = predict(split.problem, split.assignment, split.blocks)
        if split.warnings or not self._can_run(prediction):
            return None
        candidate = split_candidate(split, prediction)
        figures = replace(candidate.figures[0], latency_s=self._alone_s(split, prediction))
        return replace(candidate, figures=(figures,))

    def _can_run(self, prediction: Prediction) -> bool:
        most = {board.name: board.memory_bytes for board in self.problem.boards}
        sizes = [(board.memory_bytes, most[board.name]) for board in prediction.boards]
        has_room = all(limit is None or size <= limit for size, limit in sizes)
        return has_room and math.isfinite(prediction.bottleneck_s)

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
            LinkSpeeds(platform),
            frames=_FRAMES,
            window=1,
            overheads=overheads,
        )
        return simulation.latency_ms["p50"] / 1e3

    def in_turn(self) -> Iterator[Candidate]:
        """Yield mappings in which accelerators run the whole model in turn."""
        problem = self.problem
        whole_s = problem.spans_s[problem.device_kinds, 0, -1]
        teams = tuple(Team(g, weights_for(whole_s[[*g]].tolist())) for g in self.groups())
        made = replace(problem, teams=teams)
        for number in range(len(teams)):
            row = np.full(len(problem.layers), len(problem.devices) + number)
            if self._can_run(predict(made, row)):
                yield predicted_candidate(made, row)


def _rounded(shares: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(share), 3) for share in shares / shares.max())


def _best(tried: Sequence[_Tried], *objectives: str) -> list[_Tried]:
    """Return the best for each objective."""
    rows = [OBJECTIVES[name] for name in objectives] if tried else []
    best = [tried[int(np.argmin([row.cost_of(t.candidate) for t in tried]))] for row in rows]
    return [*{one.stretches: one for one in best}.values()]


@dataclass(frozen=True, slots=True)
class Compared:
    """Mappings of all strategies."""

    candidates: tuple[Candidate, ...]
    """Those that were there, and the best of each strategy; the fastest first, and numbered so."""
    strategies: tuple[Strategy, ...]
    evaluations: int
    """How many mappings were evaluated."""
    tried: int
    failures: tuple[Failure, ...]


def compare_strategies(
    splitter: Splitter,
    candidates: Sequence[Candidate],
    objectives: Sequence[str],
    attempt: Callable[[Candidate], Candidate] | None = None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Compared:
    """Return mappings of all strategies, the best of each by each objective.

    Args:
        candidates: what a search found without split layers.
        objectives: those of the front.
        attempt: simulates or runs a mapping and returns it with its figures added.
    """
    search = SplitSearch(splitter)
    more: list[Candidate] = []
    for candidate in itertools.chain(search.in_turn(), search.candidates()):
        more.append(candidate)
        on_progress("splitting layers", len(more), len(more) + 1)
    wanted = _chosen(more)
    failures: list[Failure] = []
    kept = [*candidates]
    for candidate in wanted:
        try:
            kept.append(attempt(candidate) if attempt else candidate)
        except InterruptedRunError:
            raise KeyboardInterrupt from None
        except RankSliceError as error:
            failures.append(Failure(candidate.mapping, str(error.mistakes[0])))
    values = np.array([[OBJECTIVES[name].cost_of(c) for name in objectives] for c in kept])
    front = {*nondominated(values).tolist()}
    ranked = numbered(replace(c, on_front=place in front) for place, c in enumerate(kept))
    tried = len(wanted) if attempt else 0
    return Compared(ranked, tuple(_strategies(ranked)), len(more), tried, tuple(failures))


def _chosen(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best of each strategy by each objective, once each."""
    best: dict[str, Candidate] = {}
    for strategy in dict.fromkeys(candidate.strategy for candidate in candidates):
        own = [candidate for candidate in candidates if candidate.strategy == strategy]
        for row in OBJECTIVES.values():
            chosen = min(own, key=row.cost_of)
            best[str(chosen.mapping)] = chosen
    return [*best.values()]


def _strategies(candidates: Sequence[Candidate]) -> Iterator[Strategy]:
    names = dict.fromkeys(candidate.strategy for candidate in candidates)
    for strategy in names:
        own = [candidate for candidate in candidates if candidate.strategy == strategy]
        best: dict[str, int] = {}
        wins = []
        for row in OBJECTIVES.values():
            first = min(own, key=row.cost_of)
            if math.isfinite(row.cost_of(first)):
                best[row.name] = first.number
                if row.cost_of(first) <= min(map(row.cost_of, candidates)):
                    wins.append(row.name)
        yield Strategy(strategy, best, tuple(wins))
