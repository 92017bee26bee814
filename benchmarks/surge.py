"""A surge of frames: one rank alone, a pipeline alone, and a job that changes between both.

Null stages. Frames arrive at a rate that one rank can handle, then for some seconds at three times
that rate, and so on. Printed are frames lost, latency before and after the surges, the most frames
that waited or were inside, how long it took to have no more than usual, and the changes of the
route. On this machine alone what the simulator predicts stands beside it. ``--plot`` draws latency
and frames in the job over time. With ``--boards`` there are two virtual boards.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from across_boards import RATE_MBIT, Boards, exit_without_boards
from null_jobs import let_sleep, parts_model
from numpy.typing import NDArray
from plotting import new_figure, save_figure
from timing import console, machine, print_table

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.switching import Change
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.deployment import deploy, plan_deployment
from rankslice.session.exploring.simulate import simulate
from rankslice.session.run import FinishedRun, prepare, run
from rankslice.session.shared_options import Launching

WHOLE_MS = 40.0
"""What the whole network takes on one rank; each of three slices takes a third."""
SLICES = 3
CALM_FPS = 15.0
SURGE_FPS = 3 * CALM_FPS
ALONE, PIPELINED, SWITCHED = "one rank", "pipeline", "switched"
SWITCHES = {ALONE: "normal", PIPELINED: "surge", SWITCHED: "auto"}


@dataclass(frozen=True, slots=True)
class Waves:
    """Arrivals: calm, surge, calm and so on."""

    count: int
    seconds: float
    """Of each surge, and of each calm before and after."""

    @property
    def surges(self) -> list[tuple[float, float]]:
        """When each begins and ends, in seconds."""
        return [((2 * n + 1) * self.seconds, (2 * n + 2) * self.seconds) for n in range(self.count)]

    def times(self) -> NDArray[np.float64]:
        """Return when frames arrive."""
        times: list[float] = []
        for part in range(2 * self.count + 1):
            fps = SURGE_FPS if part % 2 else CALM_FPS
            times += (part * self.seconds + np.arange(round(self.seconds * fps)) / fps).tolist()
        return np.array(times)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run showed, frame by frame."""

    arrived_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    switches: tuple[Change, ...]
    lost: int

    def inside(self, at_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return how many frames had arrived and not come out, at some times."""
        out_s = np.sort(self.arrived_s + self.latency_s)
        before = np.searchsorted(self.arrived_s, at_s, side="right")
        return np.asarray(before - np.searchsorted(out_s, at_s, side="right"), np.int64)

    def calm_after(self, surge: tuple[float, float], usual: int) -> float:
        """Return how long after a surge no more frames are in the job than usual, in seconds."""
        later = surge[1] + np.arange(0, self.arrived_s[-1] + 60 - surge[1], 0.01)
        fine = self.inside(later) <= usual
        return float(later[int(np.argmax(fine))] - surge[1]) if fine.any() else float("inf")

    @property
    def most_inside(self) -> int:
        """Most frames that had arrived and not come out."""
        return int(self.inside(np.arange(0, self.arrived_s[-1], 0.01)).max())

    def p99_ms(self, chosen: NDArray[np.bool_]) -> float:
        """Return the 99th percentile of the latency of some frames."""
        return 1e3 * float(np.percentile(self.latency_s[chosen], 99))


def seen(finished: FinishedRun, arrivals: NDArray[np.float64]) -> Seen:
    """Return what a run showed; the clock of its start follows from the mean latency."""
    completed, summary = finished.results.completed_s, finished.summary
    arrived = arrivals[: len(completed)]
    start_s = float(np.mean(completed - arrived)) - 1e-3 * summary.latency_ms["mean"]
    lost = len(arrivals) - len(completed)
    return Seen(arrived, completed - arrived - start_s, summary.switches, lost)


def build_job(place: Path, boards: Boards | None) -> Path:
    """Build a job with two routes: the whole network on a rank, and three slices on others."""
    model, layers = parts_model([4096] * (SLICES - 1))
    onnx.save(model, place / "model.onnx")
    if boards is None:
        keys, platform = ["local_cpu0", "local_cpu1", "local_cpu0.2", "local_cpu1.2"], "local"
    else:
        one, other = (board.name for board in boards)
        keys = [f"{one}_cpu0", f"{one}_cpu1", f"{other}_cpu0", f"{other}_cpu1"]
        hosts = {board.name: {"host": board.address, "cores": 2} for board in boards}
        (place / "platform.yaml").write_text(json.dumps({"boards": hosts}))
        platform = str(place / "platform.yaml")
    whole = [f"{layers[0][0]}..{layers[-1][-1]}"]
    (place / "normal.json").write_text(json.dumps({keys[0]: whole}))
    (place / "surge.json").write_text(json.dumps(dict(zip(keys[1:], layers, strict=True))))
    options = BuildOptions(share_cores=boards is None, surge=place / "surge.json")
    built = build(place / "model.onnx", place / "normal.json", platform, place / "out", options)
    sleeps = [WHOLE_MS, *[WHOLE_MS / SLICES] * SLICES]
    let_sleep(built.folder, built.plan, sleeps)
    if boards is not None:
        deploy(plan_deployment(built.folder, ssh_config=boards.ssh_config))
    return built.folder


def measure(
    folder: Path, boards: Boards | None, waves: Waves, place: Path
) -> tuple[dict[str, Seen], Seen]:
    """Run the job in its three ways, and one rank alone without surges."""
    launching = Launching(ssh_config=boards and boards.ssh_config)
    times = waves.times()
    results = {}
    for name, switch in SWITCHES.items():
        console.print(f"{name}: {len(times)} frames in {times[-1]:.0f} s")
        results[name] = one_run(folder, times, switch, place, launching)
    calm = np.arange(round(CALM_FPS * 3 * waves.seconds)) / CALM_FPS
    console.print(f"one rank without surges: {len(calm)} frames")
    return results, one_run(folder, calm, "normal", place, launching)


def one_run(
    folder: Path, times: NDArray[np.float64], switch: str, place: Path, launching: Launching
) -> Seen:
    """Run the job on frames that arrive at given times."""
    options = arriving(times, switch, place)
    return seen(run(prepare(folder, options, launching)), times)


def arriving(times: NDArray[np.float64], switch: str, place: Path) -> RunOptions:
    """Return the options of a run whose frames arrive at given times."""
    trace = place / "trace.txt"
    trace.write_text("".join(f"{time:.6f}\n" for time in times))
    return RunOptions(frames=len(times), arrivals=trace, switch=switch, queue=len(times))


def report(results: dict[str, Seen], control: Seen, waves: Waves) -> None:
    """Print what the runs showed."""
    usual = int(control.inside(control.arrived_s).max())
    rows = []
    for name, measured in results.items():
        is_calm = np.ones(len(measured.arrived_s), bool)
        waits = []
        for begin, end in waves.surges:
            waits.append(measured.calm_after((begin, end), usual))
            is_calm &= (measured.arrived_s < begin) | (measured.arrived_s > end + waits[-1])
        p99 = f"{measured.p99_ms(is_calm):.1f}" if is_calm.any() else "-"
        rows.append(
            (
                *(
                    name,
                    str(measured.lost),
                    p99,
                    f"{measured.p99_ms(~is_calm):.1f}",
                    str(measured.most_inside),
                ),
                *(f"{min(waits):.2f} to {max(waits):.2f}", str(len(measured.switches))),
            )
        )
    p99 = control.p99_ms(np.ones(len(control.arrived_s), bool))
    columns = ("", "lost", "calm p99, ms", "surge p99, ms", "most in the job")
    print_table(
        f"{waves.count} surges of {waves.seconds:g} s, {CALM_FPS:g} and {SURGE_FPS:g} frames/s",
        (*columns, "calm again after, s", "changes"),
        rows,
    )
    limit = 1.05 * p99 + 2
    console.print(f"one rank without surges: p99 {p99:.1f} ms; 1.05 times that and 2: {limit:.1f}")
    for change in results[SWITCHED].switches:
        console.print(
            f"{change.time_s:.2f} s: {change.route}, {change.waiting} waiting: {change.reason}"
        )


def predicted(folder: Path, times: NDArray[np.float64], switch: str) -> Seen:
    """Return what the simulator predicts of a run."""
    options = arriving(times, switch, folder.parent)
    simulation = simulate(folder, options=options).simulation
    arrived = times[: simulation.completed]
    return Seen(arrived, simulation.latencies_s, simulation.switches, len(simulation.dropped))


def report_predictions(folder: Path, results: dict[str, Seen], waves: Waves) -> None:
    """Print what was predicted of the runs beside what was measured, and their ratios."""
    rows = []
    for name, measured in results.items():
        prediction = predicted(folder, waves.times(), SWITCHES[name])
        everything = np.ones(len(measured.arrived_s), bool)
        figures = (
            [1e3 * float(run.latency_s.mean()), run.p99_ms(everything), run.most_inside]
            for run in (measured, prediction)
        )
        cells = (f"{m:.1f} / {p:.1f} = {m / p:.3f}" for m, p in zip(*figures, strict=True))
        rows.append((name, *cells, f"{len(measured.switches)} / {len(prediction.switches)}"))
    print_table(
        "measured / predicted",
        ("", "mean latency, ms", "p99, ms", "most in the job", "changes"),
        rows,
    )


def draw(results: dict[str, Seen], waves: Waves, files: Sequence[Path]) -> None:
    """Draw frames in the job and latency over time."""
    figure, (above, below) = new_figure(8, 5, rows=2)
    for name, measured in results.items():
        at_s = np.arange(0, measured.arrived_s[-1] + 5, 0.1)
        above.plot(at_s, measured.inside(at_s), label=name, linewidth=1)
        below.plot(measured.arrived_s, 1e3 * measured.latency_s, label=name, linewidth=1)
    for axes, title in ((above, "frames in the job"), (below, "latency, ms")):
        axes.set_yscale("log")
        axes.set_title(title, loc="left")
        for begin, end in waves.surges:
            axes.axvspan(begin, end, color="0.9")
    below.set_xlabel("arrival, s; grey: surges")
    above.legend(frameon=False, ncols=3, loc="upper left")
    save_figure(figure, files)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--boards", action="store_true", help="two virtual boards")
    add("--surges", type=int, default=5, help="how many")
    add("--seconds", type=float, default=10.0, help="of each, and between them")
    add("--plot", type=Path, nargs="+", default=[], help="files for the picture: .svg, .png")
    args = parser.parse_args()
    if args.boards:
        exit_without_boards()
    console.print(machine())
    waves = Waves(args.surges, args.seconds)
    with ExitStack() as resources:
        place = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rankslice-")))
        boards = resources.enter_context(Boards(2, RATE_MBIT)) if args.boards else None
        folder = build_job(place, boards)
        results, control = measure(folder, boards, waves, place)
        report(results, control, waves)
        if boards is None:
            report_predictions(folder, results, waves)
        if args.plot:
            draw(results, waves, args.plot)


if __name__ == "__main__":
    main()
