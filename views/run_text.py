"""A run as a table and lines of text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rankslice.backend.runtime.summary.rates import compute_texts, frames_text, latency_text
from rankslice.framework.wording import (
    bytes_text,
    digits,
    joined,
    joules_text,
    on_one_line,
    time_text,
)
from rankslice.measurement.board_history import mode_texts
from rankslice.session.run_record import rank_notes, verdict_text
from rankslice.views.content import Table
from rankslice.views.run_parts import (
    millijoules_text,
    numbers_text,
    rank_table,
    rate_of,
    route_texts,
)

if TYPE_CHECKING:
    from rankslice.backend.runtime.figures.rank_figures import EnergyFigures
    from rankslice.backend.runtime.sinks.results import Results
    from rankslice.measurement.board_history import HardwareSummary
    from rankslice.measurement.summary import RunSummary
    from rankslice.measurement.verify import Verification
    from rankslice.session.fail_over import Restart

_MAX_FAILURES_SHOWN = 5


def run_parts(summary: RunSummary) -> Iterator[Table | str]:
    """Yield the table of the ranks, and lines with the figures of the run."""
    yield rank_table(summary.ranks)
    yield from rank_notes(summary.ranks)
    yield rate_of(summary)
    if summary.surge_window is not None:
        yield from route_texts(summary.completed, summary.on_surge, summary.switches)
    if summary.failed:
        yield f"{frames_text(summary.failed)} failed, without results:"
        yield from map(on_one_line, summary.failures[:_MAX_FAILURES_SHOWN])
    if count := summary.all_dropped:
        yield f"{count} arrivals dropped: {numbers_text(summary.dropped, count)}"
    if summary.completed:
        yield latency_text(summary.latency_ms)
        yield _stage_means(summary)
    yield from _energies(summary.energy)
    yield from (_hardware(board) for board in summary.hardware if board.samples)
    for board, mode in summary.modes.items():
        if texts := mode_texts(mode):
            yield f"mode of {board}: {', '.join(f'{of} {text}' for of, text in texts.items())}"
    yield f"bottleneck: {summary.bottleneck}"
    if summary.verify is not None:
        yield from verdict_lines(summary.verify)


def restart_lines(restarts: Sequence[Restart]) -> Iterator[str]:
    """Yield for each job that took over which boards it did without, and how soon it followed."""
    for restart in restarts:
        after = (
            f"after {frames_text(restart.completed)}" if restart.completed else "from frame 0 on"
        )
        seconds = restart.recovered_s
        then = "" if seconds is None else f": the next result came {seconds:.1f} s later"
        yield f"without {joined(sorted(restart.without))} {after}{then}"
    if restarts:
        yield "ranks, energy and bottleneck are those of the job that took over last"


def verdict_lines(verdict: Verification) -> Iterator[str]:
    yield verdict_text(verdict)
    if verdict.first_difference:
        yield verdict.first_difference
    if (effect := verdict.unconverted) is not None:
        rows = f"; top-1 agrees in {effect.agreeing} of {effect.rows}" if effect.rows else ""
        yield (
            "against the model without conversions between boards: differs by up to"
            f" {effect.max_abs_diff:.2g}, {effect.max_rel_diff:.2g} of range{rows}"
        )


def _stage_means(summary: RunSummary) -> str:
    """Return the mean time of each stage: source, ranks, sink; then from end to end."""
    ranks = summary.ranks
    names = ["inference"] if len(ranks) == 1 else [f"rank {rank.rank}" for rank in ranks]
    pairs = zip(names, ranks, strict=True)
    stages = [
        f"preprocessing {time_text(summary.preprocess_ms['mean'])}",
        *(f"{name} {mean}" for name, rank in pairs for mean in compute_texts(rank)),
        f"postprocessing {time_text(summary.postprocess_ms['mean'])}",
    ]
    return f"means: {', '.join(stages)}; end to end {time_text(summary.latency_ms['mean'])}"


def _energies(boards: Sequence[EnergyFigures]) -> Iterator[str]:
    """Yield the energy of each board; then where it is absent, and why."""
    absent: dict[str, list[str]] = defaultdict(list)
    for board in boards:
        if board.joules is None or board.seconds is None or board.mean_w is None:
            absent[board.reason or "not reported"].append(board.board)
            continue
        millijoules = board.mj_per_frame
        per_frame = "" if millijoules is None else f", {millijoules_text(millijoules)} per frame"
        yield (
            f"energy of {board.board}: {joules_text(board.joules)} in {board.seconds:.2f} s,"
            f" {digits(board.mean_w)} W on average{per_frame}; measured by {board.sensor},"
            " idle power included"
        )
        if board.rails and millijoules is not None:
            rails = ((rail, board.rail_mj_per_frame(rail) or 0.0) for rail in board.rails)
            texts = (f"{rail} {joules_text(value / 1e3)}" for rail, value in rails)
            yield f"energy of {board.board} per frame by rail: {', '.join(texts)}"
    for reason, names in absent.items():
        yield f"energy of {joined(names)}: absent, {reason}"


def _hardware(board: HardwareSummary) -> str:
    """Return temperature, clock, throttling and memory of a board under load."""
    parts = []
    if zones := board.of("temperature_c"):
        hottest = max(zones, key=lambda zone: zones[zone]["max"])
        parts.append(f"up to {zones[hottest]['max']:.0f} °C ({hottest})")
    if clocks := board.of("frequency_mhz"):
        lowest = min(clocks, key=lambda policy: clocks[policy]["min"])
        parts.append(f"lowest clock {clocks[lowest]['min']:.0f} MHz ({lowest})")
    if "throttling" not in board.absent:
        slowed = [*_slowed(board)]
        parts.append(f"throttled ({', '.join(slowed)})" if slowed else "not throttled")
    for use in board.of("gpu_utilisation_percent").values():
        parts.append(f"GPU {use['mean']:.0f} % busy")
    for memory in board.of("memory_available_mb").values():
        parts.append(f"{bytes_text(int(memory['min'] * 1e6))} of memory left")
    # That there is no sensor of power stands in the line of the energy.
    absent = [kind for kind in board.absent if kind not in ("power", "GPU")]
    unknown = f"; {joined(absent)} unknown" if absent else ""
    return f"hardware of {board.board}: {', '.join(parts)}{unknown}"


def _slowed(board: HardwareSummary) -> Iterator[str]:
    """Yield the reasons for a slower board: brakes in use, counters that have grown."""
    for quantity in ("cooling_state", "throttled"):
        yield from (part for part, value in board.of(quantity).items() if value["max"] > 0)
    for part, count in board.of("throttle_count").items():
        if count["max"] > count["min"]:
            yield part


def shapes_json(results: Results) -> dict[str, list[list[int]]]:
    """Return the shapes of each open output by its name: one for each frame."""
    return {
        spec.name: [list(shape) for shape in results.shapes(output)]
        for output, spec in enumerate(results.outputs)
        if spec.is_open
    }


def shape_lines(results: Results) -> Iterator[str]:
    """Yield for each open output which sizes it had: ``output boxes: 0 to 37 x 4``."""
    if not len(results):
        return
    for output, spec in enumerate(results.outputs):
        if spec.is_open:
            sizes = results.records[f"shape_{output}"]
            ends = zip(sizes.min(axis=0).tolist(), sizes.max(axis=0).tolist(), strict=True)
            texts = [str(low) if low == high else f"{low} to {high}" for low, high in ends]
            yield f"output {spec.name}: {' x '.join(texts)}"
