"""From a graph, a platform and times, given or profiled, to a problem."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.devices import Accelerators, default_keys, kinds_and_devices
from rankslice.exploration.problem.problem import (
    MODEL_INPUT,
    BoardCosts,
    LayerTensor,
    Problem,
    SharedWeight,
    explored_layers,
)
from rankslice.exploration.problem.runtime_costs import (
    BOUNDS,
    NO_OVERHEADS,
    FrameBytes,
    LinkSpeeds,
    Overheads,
    default_overheads,
    slot_bytes,
)
from rankslice.exploration.times.span_times import MeasuredTimes, kind_times, summed_spans
from rankslice.framework.engines import USUAL_ENGINE
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Graph, Layer, fixed_tensors
from rankslice.framework.platform import Board, Platform
from rankslice.framework.profile import OTHER_SIZES, Profile, ProfiledKind, Span
from rankslice.frontend.costs.costs import held_by
from rankslice.frontend.partition.crossing import crossing_fault
from rankslice.frontend.partition.partition import SegmentMaker


def make_problem(
    graph: Graph,
    platform: Platform,
    times_s: NDArray[np.float64],
    *,
    accelerators: Accelerators | None = None,
    spans_s: NDArray[np.float64] | None = None,
    overheads: Overheads = NO_OVERHEADS,
    times_source: str = "given times",
    frame_bytes: FrameBytes = BOUNDS,
) -> Problem:
    """Return the problem of putting a model on the accelerators of a platform.

    Measured memory and power are not part of it; a caller that has them adds them.

    Args:
        times_s: (kinds, layers), in seconds, inf where a kind cannot run a layer; layers as
            :func:`rankslice.exploration.problem.problem.explored_layers` has them.
        accelerators: kinds and devices, of
            :func:`rankslice.exploration.problem.devices.kinds_and_devices`; by default those of
            :func:`rankslice.exploration.problem.devices.default_keys`.
        spans_s: (kinds, layers, layers) times of contiguous layers; by default sums of ``times_s``.

    Raises:
        RankSliceError: the times are not of that form. All mistakes at once.
    """
    layers = explored_layers(graph)
    kinds, devices = accelerators or kinds_and_devices(default_keys(platform), platform)
    times = np.asarray(times_s, np.float64)
    raise_mistakes(_time_mistakes(times, (len(kinds), len(layers)), times_source))
    links = LinkSpeeds(platform, converts=True)
    names = [board.name for board in platform.boards]
    figures = links.figures(itertools.product(names, names))
    bandwidths, latencies, shares = (of.reshape(len(names), len(names)) for of in figures)
    weights = _weights(graph, layers)
    return Problem(
        layers=tuple(layer.name for layer in layers),
        devices=devices,
        boards=tuple(map(_board_costs, platform.boards)),
        times_s=times,
        spans_s=summed_spans(times) if spans_s is None else spans_s,
        weight_bytes=_weight_bytes(weights, len(layers)),
        tensors=tuple(_tensors(graph, layers, frame_bytes)),
        bandwidth_bytes_s=bandwidths,
        latency_s=latencies,
        wire_share=shares,
        kinds=kinds,
        shared_weights=tuple(weight for weight in weights if len(weight.readers) > 1),
        together=_together(graph, layers),
        working_bytes=np.array(
            [sum(t.nbytes or 0 for t in (*layer.inputs, *layer.outputs)) for layer in layers],
            np.int64,
        ),
        overheads=overheads,
        model=graph.name,
        graph=graph,
        times_source=times_source,
        platform=platform.name,
        link_sources=tuple(
            tuple(links.described(one, other)[1] for other in names) for one in names
        ),
    )


def _time_mistakes(
    times: NDArray[np.float64], shape: tuple[int, int], source: str
) -> Iterator[Mistake]:
    if times.shape != shape:
        found = f"the times have the shape {times.shape}"
        yield Mistake(source, found, f"expected {shape}: kinds of accelerators and layers")
    elif np.isnan(times).any() or (times < 0).any():
        yield Mistake(source, "some times are not numbers, or below 0", "expected seconds")


def _board_costs(board: Board) -> BoardCosts:
    memory = None if board.memory_mb is None else round(board.memory_mb * 1e6)
    return BoardCosts(board.name, memory, board.idle_w, board.busy_w)


def _together(graph: Graph, layers: Sequence[Layer]) -> tuple[tuple[int, ...], ...]:
    position = {layer.name: index for index, layer in enumerate(layers)}
    groups = ([position[name] for name in bond.layers if name in position] for bond in graph.bonds)
    return tuple(tuple(sorted(group)) for group in groups)


def _tensors(
    graph: Graph, layers: Sequence[Layer], frame_bytes: FrameBytes
) -> Iterator[LayerTensor]:
    """Yield what layers read and give out, model inputs first.

    A layer that reads nothing is taken to read the smallest model input, which paces a segment of
    such layers alone: among others it is a message too many.
    """
    reads = SegmentMaker(graph).reads
    readers: dict[str, list[int]] = {}
    smallest = min(graph.inputs, key=lambda tensor: tensor.nbytes or float("inf"))
    for index, layer in enumerate(layers):
        for tensor in reads[layer.name] or (smallest,):
            readers.setdefault(tensor.name, []).append(index)
    outputs = {tensor.name for tensor in graph.outputs}
    fixed = fixed_tensors(graph)
    made = [(MODEL_INPUT, tensor) for tensor in graph.inputs]
    made += [(index, tensor) for index, layer in enumerate(layers) for tensor in layer.outputs]
    for producer, tensor in made:
        if producer == MODEL_INPUT or tensor.name in readers or tensor.name in outputs:
            yield LayerTensor(
                tensor.name,
                producer,
                float("inf") if crossing_fault(tensor) else frame_bytes.mean(tensor),
                tuple(readers.get(tensor.name, ())),
                tensor.name in outputs,
                most_bytes=float(slot_bytes(tensor)),
                is_convertible=tensor.dtype == "float32" and tensor.name not in fixed,
                is_bound=frame_bytes.is_bound(tensor),
            )


def _weights(graph: Graph, layers: Sequence[Layer]) -> list[SharedWeight]:
    """Return the constants of the model with their readers, those of copied layers included."""
    held: dict[str, dict[str, int]] = {}  # by tensor: what the copies behind it hold
    for copy in SegmentMaker(graph).copied:
        own = _held(copy, held)
        held |= {tensor.name: own for tensor in copy.outputs}
    sizes: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for name, nbytes in _held(layer, held).items():
            sizes[name] = nbytes
            readers.setdefault(name, []).append(index)
    return [SharedWeight(sizes[name], tuple(readers[name])) for name in sizes]


def _held(layer: Layer, behind: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return the sizes of the constants that a layer brings along, by name."""
    sizes = {item.name: item.nbytes or 0 for item in held_by(layer)}
    for tensor in layer.inputs:
        sizes |= behind.get(tensor.name, {})
    return sizes


def _weight_bytes(weights: Iterable[SharedWeight], layers: int) -> NDArray[np.int64]:
    total = np.zeros(layers, np.int64)
    for weight in weights:
        total[list(weight.readers)] += weight.nbytes
    return total


def profiled_problem(
    profile: Profile,
    graph: Graph,
    platform: Platform,
    *,
    keys: Sequence[str] | None = None,
    default_engine: str = USUAL_ENGINE,
    source: str = "profile.json",
) -> Problem:
    """Return the problem of putting a model on a platform, with times that were measured.

    Args:
        keys: mapping keys of the devices; by default those that were measured.
        default_engine: engine of CPU ranks on boards whose platform names none.

    Raises:
        RankSliceError: the profile is of another model or of other sizes, or lacks an accelerator.
    """
    names = tuple(layer.name for layer in explored_layers(graph))
    if names != profile.model.layers:
        found = f"is a profile of {profile.model.name}, whose layers are others"
        raise RankSliceError(Mistake(source, found, f"profile {graph.name}"))
    if found := profile.model.other_sizes(graph.inputs):
        raise RankSliceError(Mistake(source, found, OTHER_SIZES))
    chosen = measured_keys(profile, platform) if keys is None else tuple(keys)
    if not chosen:
        found = "measured no accelerator of these boards"
        raise RankSliceError(Mistake(source, found, "profile the model on them"))
    alike = [kind.keys for kind in profile.kinds]
    accelerators = kinds_and_devices(chosen, platform, default_engine=default_engine, alike=alike)
    profiled = {kind: profile.kind_of(kind.key) for kind in accelerators[0]}
    raise_mistakes(
        Mistake(source, f"no accelerator like {kind.key} was measured", "profile it, too")
        for kind, measured in profiled.items()
        if measured is None
    )
    kinds = [measured for measured in profiled.values() if measured is not None]
    times = MeasuredTimes([kind_times(kind, len(names)) for kind in kinds])
    problem = make_problem(
        graph,
        platform,
        times.times_s,
        accelerators=accelerators,
        spans_s=times.spans_s,
        overheads=default_overheads(kind.engine for kind in profiled),
        times_source=source,
        frame_bytes=FrameBytes(profile.seen),
    )
    more, gpu = (
        np.array([_engine_bytes(kind, size_of, problem) for kind in kinds])
        for size_of in (lambda span: span.memory_bytes, lambda span: span.gpu_bytes or None)
    )
    idle_w = _idle_w(profile)
    return replace(
        problem,
        boards=tuple(
            replace(board, idle_w=idle_w[board.name], is_idle_measured=True)
            if board.name in idle_w
            else board
            for board in problem.boards
        ),
        rank_bytes=np.array([kind.rank_bytes for kind in kinds]) + np.nan_to_num(more),
        gpu_bytes=gpu,
        measured_w=np.array([active_w(kind) for kind in kinds]),
    )


def _engine_bytes(
    kind: ProfiledKind, size_of: Callable[[Span], int | None], problem: Problem
) -> float:
    """Return the memory of a rank beyond its layers once its engine runs; NaN if not known.

    That is an accelerator's context and libraries, hundreds of megabytes for some. It is the median
    over the spans that were measured, of what they took beyond their weights and working memory.

    Args:
        size_of: returns what a span took of the board's memory, or of the GPU's.
    """
    held = np.concatenate([[0], np.cumsum(problem.weight_bytes)])
    more = [
        nbytes
        - int(held[span.last + 1] - held[span.first])
        - int(problem.working_bytes[span.first : span.last + 1].max())
        for span in kind.spans
        if (nbytes := size_of(span)) is not None
    ]
    return max(0.0, statistics.median(more)) if more else float("nan")


def measured_keys(profile: Profile, platform: Platform) -> tuple[str, ...]:
    """Return the mapping keys of a platform's accelerators that were measured, board by board."""
    boards = [board.name for board in platform.boards]
    keys = [key for kind in profile.kinds for key in kind.keys]
    on_board = [(key.rpartition("_")[0], key) for key in keys]
    return tuple(key for board in boards for owner, key in on_board if owner == board)


def _idle_w(profile: Profile) -> dict[str, float]:
    """Return the power of idle boards in watts, by name, where a sensor measured it.

    Boards that are equal to one that was measured draw what that one does.
    """
    return {
        key.rpartition("_")[0]: 1e-3 * kind.board.idle_mw
        for kind in profile.kinds
        if kind.board.idle_mw is not None
        for key in kind.keys
    }


def active_w(kind: ProfiledKind) -> float:
    """Return the power above idle while a kind computes, in watts; NaN without a sensor."""
    idle_mw = kind.board.idle_mw
    energy_uj = seconds = 0.0
    for span in kind.spans:
        if span.energy_uj is not None and span.seconds is not None:
            energy_uj += span.energy_uj
            seconds += span.seconds
    if idle_mw is None or not seconds:
        return float("nan")
    return max(0.0, 1e-6 * energy_uj / seconds - 1e-3 * idle_mw)
