"""What a change of sizes costs LiteRT's engine, beside a frame of the same sizes as the last.

    python benchmarks/changing_sizes.py MODEL.tflite --at-most IN=1,224,224,3

Each frame has random sizes, at least half of the bounds, and is run twice: the first run changes
the sizes, the second does not. A new engine for each frame is the reference.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import print_table, ratios, spread

from rankslice.backend.runtime.engines import Engine, EngineSettings, open_engine
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sizes import Slot, make_slot
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import read_tflite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--at-most", action="append", required=True)
    parser.add_argument("--frames", type=int, default=200)
    args = parser.parse_args()
    graph = read_tflite(args.model, GivenSizes(at_most=_sizes(args.at_most))).graph
    inputs, outputs = ([t.in_job() for t in tensors] for tensors in (graph.inputs, graph.outputs))
    slots = [make_slot(spec) for spec in outputs]
    random = np.random.default_rng(0)
    frames = [[_values(spec, random) for spec in inputs] for _ in range(args.frames)]

    _loaded(args.model, inputs, outputs).close()  # loads the library
    before = _resident_kb()
    engine = _loaded(args.model, inputs, outputs)
    engine.run([np.zeros(spec.shape, spec.dtype) for spec in inputs], slots)
    after_kb = _resident_kb()
    changed, same = [], []
    for frame in frames:
        changed.append(_seconds(engine, frame, slots))
        same.append(_seconds(engine, frame, slots))
    end_kb = _resident_kb()
    new = []
    for frame, usual in zip(frames[:20], same[:20], strict=True):
        begin = time.perf_counter()
        other = _loaded(args.model, inputs, outputs)
        other.run(frame, slots)
        new.append((time.perf_counter() - begin) / usual)
        other.close()
    rows = [
        ("same sizes, ms", spread(1e3 * seconds for seconds in same).text()),
        ("changed / same sizes", ratios(changed, same).text()),
        ("new engine / same sizes", spread(new).text()),
        (
            "memory after a frame of the bound, MiB",
            f"{(after_kb - before) / 1024:.1f}",
        ),
        ("memory at the end, MiB", f"{(end_kb - before) / 1024:.1f}"),
    ]
    print_table(args.model.name, ("", "median (95 %)"), rows)


def _sizes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    pairs = (text.rpartition("=") for text in texts)
    return {name: tuple(map(int, sizes.split(","))) for name, _, sizes in pairs}


def _values(spec: Tensor, random: np.random.Generator) -> NDArray[Any]:
    sizes = zip(spec.shape, spec.symbols or ("",) * len(spec.shape), strict=True)
    shape = [int(random.integers((s + 1) // 2, s + 1)) if symbol else s for s, symbol in sizes]
    return np.asarray(random.integers(0, 9, shape), spec.dtype)


def _loaded(path: Path, inputs: list[Tensor], outputs: list[Tensor]) -> Engine:
    engine = open_engine("litert", EngineSettings())
    engine.load(path, inputs, outputs)
    return engine


def _seconds(engine: Engine, frame: Sequence[NDArray[Any]], slots: Sequence[Slot]) -> float:
    begin = time.perf_counter()
    engine.run(frame, slots)
    return time.perf_counter() - begin


def _resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024


if __name__ == "__main__":
    main()
