"""How much faster `--verify` computes what the unsliced model gives, with a copy for each core.

One copy and as many as there are cores take turns on the same frames. The time is that of the
comparison's reference alone, loading included; results are equal bit by bit, or this ends.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path

import onnx
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.runtime.job import load_job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.random_source import RandomSource
from rankslice.commands.build.build import build
from rankslice.commands.run import unsliced
from rankslice.networks.zoo import zoo_model, zoo_names


def build_whole(model: Path, place: Path) -> Path:
    """Return a build folder with the whole model on one rank."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    mapping = place / "mapping.json"
    mapping.write_text(json.dumps({"local_cpu0": [f"{nodes[0].name}..{nodes[-1].name}"]}))
    return build(model, mapping, "local", place / "out").folder


def compute(folder: Path, frames: int, *, alone: bool) -> tuple[float, str]:
    """Return the seconds that some frames take, and a hash of their outputs."""
    job = load_job(folder / "plan.json")
    source = RandomSource(RunOptions(frames=frames), job.inputs)
    most = unsliced.most_at_once
    if alone:
        unsliced.most_at_once = lambda *_: 1
    digest = hashlib.sha256()
    begin = time.perf_counter()
    try:
        model = (folder / "model").resolve()
        for outputs in unsliced.unsliced_outputs(
            model, job, "onnxruntime", source, range(frames), exact=False
        ):
            for values in outputs:
                digest.update(values.tobytes())
    finally:
        unsliced.most_at_once = most
    return time.perf_counter() - begin, digest.hexdigest()


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--network", choices=zoo_names(), default="resnet50")
    add("--frames", type=int, default=40, help="compared in each round")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    given = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        folder = build_whole(zoo_model(given.network), Path(place))
        one, many = [], []
        for number in range(given.rounds):
            start_round(number + 1, given.rounds, given.patience)
            for alone, found in ((True, one), (False, many)):
                found.append(compute(folder, given.frames, alone=alone))
    if len({digest for _, digest in (*one, *many)}) != 1:
        raise SystemExit("the copies do not give the same")
    one_s, many_s = [seconds for seconds, _ in one], [seconds for seconds, _ in many]
    rows = [
        ("one copy", spread(one_s).text(2), ""),
        ("a copy for each core", spread(many_s).text(2), ratios(one_s, many_s).text(2)),
    ]
    print_table(f"{given.network}, {given.frames} frames", ("", "seconds", "times as fast"), rows)


if __name__ == "__main__":
    main()
