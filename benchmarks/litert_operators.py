"""Whether LiteRT's operators add up to a run, and what it costs to have them timed.

In turns, one thread: the interpreter, the compiled model that runs in its place in a profile, and
the same model with its profiler stopped. The networks are MobileNetV2 in float32 and int8 (they are
made by TensorFlow at the first use), or the ``.tflite`` files that are given.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.engines.litert_package import find_package
from rankslice.backend.runtime.job import Tensor
from rankslice.networks.keras_zoo import keras_model

PLAIN, PROFILED, STOPPED = "interpreter", "profiled", "compiled, profiler stopped"


def tensors(details: list[dict[str, object]]) -> list[Tensor]:
    return [
        Tensor(
            str(detail["name"]), np.dtype(detail["dtype"]).name, tuple(map(int, detail["shape"]))
        )  # type: ignore[call-overload]
        for detail in details
    ]


class Network:
    """A model in three engines, and values for its inputs."""

    def __init__(self, path: Path) -> None:
        interpreter = find_package().interpreter(path, 1, ())
        self.inputs = tensors(interpreter.get_input_details())
        self.outputs = tensors(interpreter.get_output_details())
        random = np.random.default_rng(0)
        self.values = [
            (4 * random.standard_normal(spec.shape)).astype(spec.dtype) for spec in self.inputs
        ]
        self.results = [np.zeros(spec.shape, spec.dtype) for spec in self.outputs]
        self.engines = {
            PLAIN: open_engine("litert", EngineSettings()),
            PROFILED: open_engine("litert", EngineSettings(profile="unused")),
            STOPPED: open_engine("litert", EngineSettings(profile="unused")),
        }
        for engine in self.engines.values():
            engine.load(path, self.inputs, self.outputs)
        self.engines[STOPPED].operators()

    def turn(self, name: str, runs: int) -> float:
        """Return the median time of some runs, in milliseconds."""
        engine, taken = self.engines[name], []
        for _ in range(runs):
            begin = time.perf_counter()
            engine.run(self.values, self.results)
            taken.append(1e3 * (time.perf_counter() - begin))
        return float(np.median(taken))

    def shares(self) -> list[float]:
        """Return, for each profiled run, which share of it its operators took."""
        spans = self.engines[PROFILED].operators()
        assert spans is not None
        begins = np.array([begin for begin, _ in spans.runs])
        taken = np.zeros(len(begins))
        for _, begin, duration in spans.spans:
            taken[np.searchsorted(begins, begin, side="right") - 1] += duration
        return (taken / [duration for _, duration in spans.runs]).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help=".tflite files")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--runs", type=int, default=20, help="in a turn of each")
    args = parser.parse_args()
    files = args.files or [keras_model("mobilenetv2", kind) for kind in ("float32", "int8")]
    rows = []
    for file in files:
        network = Network(file)
        jobs = {name: partial(network.turn, name, args.runs) for name in network.engines}
        measured = in_turns(args.turns, jobs)
        rows.append(
            (
                file.name,
                spread(measured[PLAIN]).text(),
                spread(network.shares()).text(3),
                ratios(measured[PROFILED], measured[PLAIN]).text(3),
                ratios(measured[PROFILED], measured[STOPPED]).text(3),
            )
        )
    head = ("network", "interpreter, ms", "operators / run", "profiled / interpreter")
    print_table("operators of LiteRT", (*head, "profiler on / off"), rows)
    console.print(machine())


if __name__ == "__main__":
    main()
