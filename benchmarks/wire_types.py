"""What float16 between boards changes: errors and agreement of five published networks.

Each network is cut in its middle, for two boards on this machine, and fed with random frames. The
job must be bit-equal to the unsliced model with the same conversions.

    python benchmarks/wire_types.py [--frames 4] [--wire float16]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.platform import WIRES
from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.run import prepare, run

NETWORKS = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1")
BOARDS = "boards: {a: {host: localhost, cores: 2}, b: {host: localhost, cores: 2}}\n"


def row(network: str, frames: int, wire: str, folder: Path) -> str:
    model = zoo_model(network)
    graph = read_model(model).graph
    names = [layer.name for layer in graph.layers]
    middle = len(names) // 2
    values = np.random.default_rng(0).standard_normal((frames, *(graph.inputs[0].shape or ())[1:]))
    np.save(folder / "frames.npy", values.astype(np.float32))
    (folder / "boards.yaml").write_text(BOARDS)
    spans = {"a_cpu0": names[: middle + 1], "b_cpu1": names[middle + 1 :]}
    entries = (MappingEntry(key, (f"{of[0]}..{of[-1]}",)) for key, of in spans.items())
    quantisation = Quantisation(representative=folder / "frames.npy")
    options = BuildOptions(wire=wire, quantisation=quantisation)  # type: ignore[arg-type]
    mapping = Mapping("mapping", tuple(entries))
    built = build(model, mapping, folder / "boards.yaml", folder / "out", options)
    prepared = prepare(built.folder, RunOptions((str(folder / "frames.npy"),), exact=True))
    verdict = run(prepared, verify=True).summary.verify
    assert verdict is not None
    effect = verdict.unconverted
    assert effect is not None
    errors = [(one.max_error or 0) / (one.value_range or 1) for one in built.plan.conversions]
    return (
        f"{network:14} {len(errors):7} {max(errors):12.2g} {verdict.bit_equal!s:>9}"
        f" {effect.max_rel_diff:12.2g} {effect.agreeing:5} of {effect.rows}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--wire", choices=WIRES[1:], default="float16")
    arguments = parser.parse_args()
    print("network        tensors  error/range bit-equal result/range top-1 agrees")
    for network in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            print(row(network, arguments.frames, arguments.wire, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
