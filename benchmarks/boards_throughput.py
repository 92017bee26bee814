"""The rate of a pipeline over one to eight boards, against what its slowest stage or cable allows.

ResNet-50 is cut into as many parts with about the same number of multiplications as there are
boards, where one tensor alone crosses. Each board sleeps for 20 ms a frame instead of computing,
and sends as many bytes as the part would. So no stage is faster than 20 ms, and no cable than its
tensor with TCP's headers takes at the cable's rate: the larger of both is the bottleneck.

The boards are virtual (docs/virtual-boards.md) and share the cores of this machine with the
network stack, which real boards do not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from across_boards import Boards, Job, build_for, exit_without_boards, keys_of, wire_ms
from null_jobs import parts_model
from plotting import new_figure, save_figure
from timing import Interval, console, in_turns, machine, print_table, ratios, spread

from rankslice.frontend.costs.cuts import Cut
from rankslice.networks.zoo import zoo_model
from rankslice.session.inspecting.inspect import inspect_model

STAGE_MS = 20.0
TARGET = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A pipeline over the first boards of a rack."""

    job: Job
    sizes: tuple[int, ...]
    """Bytes of each channel, in order."""
    slowest_cable_ms: float

    @property
    def boards(self) -> int:
        """How many there are."""
        return len(self.sizes) + 1

    @property
    def bottleneck_ms(self) -> float:
        """The time that no frame can fall below."""
        return max(STAGE_MS, self.slowest_cable_ms)

    @property
    def bottleneck(self) -> str:
        """What it is that takes so long."""
        if self.slowest_cable_ms <= STAGE_MS:
            return f"stage, {STAGE_MS:g} ms"
        number = self.sizes.index(max(self.sizes)) + 1
        return f"cable {number} to {number + 1}, {self.slowest_cable_ms:.1f} ms"


def balanced_cuts(cuts: Sequence[Cut], parts: int) -> list[Cut]:
    """Return where to cut into parts of about the same number of MACs, one tensor a cut."""
    single = [cut for cut in cuts if len(cut.tensors) == 1 and cut.divides and not cut.obstacle]
    shares = [number / parts for number in range(1, parts)]
    return [min(single, key=lambda cut: abs(cut.share - share)) for share in shares]


def make_pipeline(rack: Boards, place: Path, sizes: Sequence[int]) -> Pipeline:
    """Build a pipeline over the first boards, for channels of these sizes in bytes."""
    place.mkdir()
    model, parts = parts_model(sizes)
    onnx.save(model, place / "model.onnx")
    mapping = dict(zip(keys_of(rack), parts, strict=False))
    sleeps_ms = [STAGE_MS] * len(parts)
    job = build_for(rack, place, place / "model.onnx", mapping, sleeps_ms=sleeps_ms)
    slowest = max((wire_ms(size, rack.wish.rate_mbit) for size in sizes), default=0.0)
    return Pipeline(job, tuple(sizes), slowest)


def report(times: dict[Pipeline, list[float]]) -> None:
    """Print what the rounds showed."""
    rows = []
    for pipeline, frames_ms in times.items():
        channels = " ".join(f"{size / 1e6:.1f}" for size in pipeline.sizes)
        share = shares_of(pipeline, frames_ms)
        rows.append(
            (
                f"{pipeline.boards}",
                channels,
                pipeline.bottleneck,
                spread(frames_ms).text(2),
                spread(1e3 / ms for ms in frames_ms).text(1),
                share.text(3),
                "yes" if share.value >= TARGET else "no",
            )
        )
    columns = (
        "boards",
        "MB a channel",
        "bottleneck",
        "ms per frame",
        "frames/s",
        "rate / (1 / bottleneck)",
        f">= {TARGET}",
    )
    print_table("One to eight boards, null engine, channels of ResNet-50", columns, rows)


def shares_of(pipeline: Pipeline, frames_ms: Sequence[float]) -> Interval:
    """Return the rate as a share of what the bottleneck allows."""
    return ratios([pipeline.bottleneck_ms] * len(frames_ms), frames_ms)


def draw(times: dict[Pipeline, list[float]], files: Sequence[Path]) -> None:
    """Write a plot of the rates."""
    figure, axes = new_figure(6.4, 3.6)
    counts = [pipeline.boards for pipeline in times]
    possible = [1e3 / pipeline.bottleneck_ms for pipeline in times]
    rates = [spread(1e3 / ms for ms in frames_ms) for frames_ms in times.values()]
    middles = [rate.value for rate in rates]
    errors = [
        [rate.value - rate.low for rate in rates],
        [rate.high - rate.value for rate in rates],
    ]
    axes.step(counts, possible, where="mid", color="0.6", label="1 / bottleneck")
    axes.errorbar(counts, middles, errors, fmt="o", capsize=3, label="measured: median, 95 %")
    for (pipeline, frames_ms), middle in zip(times.items(), middles, strict=True):
        share = shares_of(pipeline, frames_ms).value
        place = (pipeline.boards, middle)
        offset = {"xytext": (0, -14), "textcoords": "offset points"}
        axes.annotate(f"{share:.3f}", place, ha="center", va="top", **offset)
    axes.set_ylim(0, 1.15 * max(possible))
    axes.set_xticks(counts)
    axes.set_xlabel("boards, 20 ms a stage, 1 Gbit/s")
    axes.set_ylabel("frames/s")
    axes.set_title("Rate over virtual boards, and as a share of 1 / bottleneck", loc="left")
    axes.legend(loc="lower left", frameon=False)
    save_figure(figure, files)


def measure(
    counts: Sequence[int], frames: int, rounds: int, *, rate_mbit: float
) -> dict[Pipeline, list[float]]:
    """Return the time per frame over these numbers of boards, round by round, in milliseconds."""
    cuts = inspect_model(zoo_model("resnet50")).cuts
    sizes = [[cut.nbytes or 0 for cut in balanced_cuts(cuts, count)] for count in counts]
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-") as folder,
        Boards(max(counts), rate_mbit, disk_mb=64) as rack,
    ):
        pipelines = [
            make_pipeline(rack, Path(folder) / str(len(indices)), indices) for indices in sizes
        ]
        return in_turns(
            rounds, {pipeline: partial(frame_ms, pipeline.job, frames) for pipeline in pipelines}
        )


def frame_ms(job: Job, frames: int) -> float:
    job.deploy()
    return 1e3 / job.run(frames).throughput_fps


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--boards", type=int, default=8, help="how many at most")
    add("--frames", type=int, default=100, help="per run")
    add("--rounds", type=int, default=3, help="rounds of measurements")
    add("--rate", type=float, default=1000, help="of each cable, in Mbit/s")
    add("--plot", type=Path, nargs="+", default=[], help="files to draw into, .svg or .png")
    args = parser.parse_args()
    exit_without_boards()
    console.print(machine())
    counts = range(1, args.boards + 1)
    times = measure(counts, args.frames, args.rounds, rate_mbit=args.rate)
    report(times)
    if args.plot:
        draw(times, args.plot)


if __name__ == "__main__":
    main()
