"""What a pipeline takes beyond its slices: the figures behind the cost model's usual ones.

Two ranks on a core each compute rows of convolutions, and one sends the other a tensor. What the
slower of them computes is measured as `rankslice profile` measures slices, before and after the
pipeline runs. What a frame takes longer in the pipeline is what the runtime, the message, and
beginning a slice anew cost its cores. `--vary` chooses what differs from case to case: the size of
the messages (of long slices, too), the length of the slices, or the number of slices in which the
slower rank has its work, with the other rank's between them. With `--boards` each rank has a
virtual board, and messages cross a cable.

The networks whose rates `prediction.py` predicts do not take part.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from across_boards import Boards, boards_if, build_for, keys_of
from null_jobs import keys_of_cores
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from pipeline_efficiency import store_frames
from timing import console, in_turns, machine, print_table, spread

from rankslice.exploration.times.span_times import Slice
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.profiler import Profiler

CHANNELS, SIDE = 64, 94
RUN_S = 2.5
"""How long a run takes, in seconds."""
MEASURED_TIMES = 4
"""How often slices are measured before a run, and again after it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline of two ranks."""

    megabytes: float
    """Of each message."""
    pieces: tuple[tuple[int, int], ...]
    """Rank and convolutions of each slice, in order; rank 0 has most of the work, or rank 1."""

    @property
    def slower(self) -> int:
        """The rank with more work."""
        work = [sum(count for rank, count in self.pieces if rank == side) for side in (0, 1)]
        return int(np.argmax(work))

    @property
    def slices(self) -> int:
        """How many the slower rank has."""
        return sum(rank == self.slower for rank, _ in self.pieces)

    @property
    def role(self) -> str:
        """What the slower rank does with messages."""
        if self.slices > 1:
            return "sends and receives"
        return "receives" if self.slower else "sends"

    @property
    def nbytes(self) -> float:
        """What the slower rank sends and receives for each frame."""
        return 1e6 * self.megabytes * (len(self.pieces) - 1)


CASES = {
    "size": [
        Case(size, pieces)
        for size in (0.01, 0.5, 1.0, 2.0, 4.0)
        for pieces in (((0, 7), (1, 4)), ((0, 4), (1, 7)))
    ],
    "size-of-long": [
        Case(size, pieces)
        for size in (0.01, 1.0, 2.0, 3.0)
        for pieces in (
            ((0, 48), (1, 32)),
            ((0, 32), (1, 48)),
            ((0, 24), (1, 32), (0, 24)),
        )
    ],
    "length": [
        Case(0.5, pieces)
        for long, short in ((1, 0), (7, 4), (24, 16))
        for pieces in (((0, long), (1, short)), ((0, short), (1, long)))
    ],
    "slices": [
        Case(0.1, pieces)
        for pieces in (
            ((0, 12), (1, 4)),
            ((0, 6), (1, 4), (0, 6)),
            ((0, 4), (1, 2), (0, 4), (1, 2), (0, 4)),
        )
    ],
}


class Network:
    """A model that grows layer by layer."""

    def __init__(self) -> None:
        """Begin with a single number as input."""
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weight(self, values: NDArray[np.generic]) -> str:
        """Add a constant and return its name."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def noise(self, *shape: int) -> NDArray[np.float32]:
        """Return normally distributed values."""
        return self._random.standard_normal(shape, np.float32)

    def add(self, operator: str, *inputs: str, **settings: int) -> str:
        """Add a layer and return its name, which is also that of what it makes."""
        name = f"{operator}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **settings))
        return name

    def write(self, path: Path) -> None:
        """Write the model; its output is the last layer's."""
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1])
        made = helper.make_tensor_value_info(self._nodes[-1].name, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "pieces", [image], [made], self._weights)
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def write_model(path: Path, case: Case) -> list[list[str]]:
    """Write the model of a case; return the layers of each slice.

    A slice adds one number, the mean of what comes in, to a tensor and lets that go through its
    convolutions. It repeats the mean of the result as often as the message is to be large, but for
    the last, whose results go to a file.
    """
    network, received, slices = Network(), "image", []
    numbers = [max(1, round(case.megabytes * 1e6 / 4))] * (len(case.pieces) - 1) + [1]
    for (_, convolutions), count in zip(case.pieces, numbers, strict=True):
        names = [network.add("ReduceMean", received, keepdims=0)]
        start = network.weight(network.noise(1, CHANNELS, SIDE, SIDE))
        names.append(network.add("Add", names[0], start))
        for _ in range(convolutions):
            kernel = network.noise(CHANNELS, CHANNELS, 1, 1) / np.float32(CHANNELS**0.5)
            names.append(network.add("Conv", names[-1], network.weight(kernel)))
        names.append(network.add("ReduceMean", names[-1], keepdims=0))
        shape = network.weight(np.array([count], np.int64))
        received = network.add("Expand", names[-1], shape)
        slices.append([*names, received])
    network.write(path)
    return slices


def mapping_of(
    case: Case, keys: Sequence[str], layers: Sequence[Sequence[str]]
) -> dict[str, list[str]]:
    """Return the mapping of a case: each rank's key with the layers of its slices, in order."""
    mapping: dict[str, list[str]] = {key: [] for key in keys}
    for (rank, _), names in zip(case.pieces, layers, strict=True):
        mapping[keys[rank]] += names
    return mapping


def measure(case: Case, boards: Boards | None) -> tuple[float, float]:
    """Return the time of the slower rank's slices alone, and of a frame, in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        return measure_in(Path(place), case, boards)


def measure_in(place: Path, case: Case, boards: Boards | None) -> tuple[float, float]:
    model = place / "model.onnx"
    layers = write_model(model, case)
    job = build_for(boards, place, model, mapping_of(case, keys_of(boards, 2), layers))
    job.deploy()
    source = str(store_frames(job.plan, place / "frames.npz"))
    ends = [0, *itertools.accumulate(map(len, layers))]
    spans = [(begin, end - 1) for begin, end in itertools.pairwise(ends)]
    slower = [
        Slice(0, *span)
        for (rank, _), span in zip(case.pieces, spans, strict=True)
        if rank == case.slower
    ]
    alone = alone_s(model, slower)
    summary = job.run(round(RUN_S / (median(alone) + 1e-3)), inputs=(source,))
    alone += alone_s(model, slower)
    times = 1e3 * median(alone), 1e3 / summary.throughput_fps
    console.print(f"{case}: {times[0]:.2f} ms alone, {times[1]:.2f} ms", style="dim")
    return times


def alone_s(model: Path, slices: Sequence[Slice]) -> list[float]:
    """Return what slices take together, several times, while the other core computes, too."""
    with Profiler(
        model, "local", None, ProfileOptions(accelerators=tuple(keys_of_cores(2)))
    ) as profiler:
        return [sum(profiler.measure_slices(slices)) for _ in range(MEASURED_TIMES)]


def report(results: dict[Case, list[tuple[float, float]]]) -> None:
    """Print what the rounds showed."""
    rows = [
        (
            case.role,
            f"{case.megabytes:g}",
            f"{case.slices}",
            spread(alone for alone, _ in rounds).text(2),
            spread(frame - alone for alone, frame in rounds).text(2),
        )
        for case, rounds in results.items()
    ]
    print_table(
        "What a frame takes beyond the slower rank's slices, in ms",
        ("the slower rank", "MB a message", "slices", "they alone", "beyond them"),
        rows,
    )
    beyond = [median(frame - alone for alone, frame in rounds) for rounds in results.values()]
    console.print(f"mean: {np.mean(beyond):.2f} ms")
    report_bytes(results)


def report_bytes(results: dict[Case, list[tuple[float, float]]]) -> None:
    """Print what each byte adds, if sizes differ: a line is fitted to each round's cases."""
    alike: dict[tuple[tuple[int, int], ...], list[Case]] = {}
    for case in results:
        alike.setdefault(case.pieces, []).append(case)
    for cases in alike.values():
        sizes = [case.nbytes for case in cases]
        if len(set(sizes)) == 1:
            continue
        slopes = [
            1e6 * float(np.polyfit(sizes, [frame - alone for alone, frame in done], 1)[0])
            for done in zip(*(results[case] for case in cases), strict=True)
        ]
        role = cases[0].role
        console.print(f"a byte takes a rank that {role} {spread(slopes).text(1)} ns")


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--vary", choices=CASES, default="size", help="what differs from case to case")
    add("--rounds", type=int, default=3, help="rounds of measurements")
    add("--boards", action="store_true", help="a virtual board for each rank")
    args = parser.parse_args()
    console.print(machine())
    with boards_if(2 * args.boards) as boards:
        cases = {case: partial(measure, case, boards) for case in CASES[args.vary]}
        results = in_turns(args.rounds, cases)
    report(results)


if __name__ == "__main__":
    main()
