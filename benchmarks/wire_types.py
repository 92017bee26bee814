"""What fewer bits between boards change: results of networks, and rates of virtual boards.

Each network is cut in its middle, those in ONNX with newer operators, for two boards on this
machine, and fed with random frames. The job must be bit-equal to the unsliced model with the same
conversions.

With ``--boards``, two virtual boards run pairs of ranks: a tensor of 1.2 MB and next to no
computing, and SqueezeNet cut early, over 100 Mbit/s; and SqueezeNet in halves over 1 Gbit/s, where
computing limits. Rounds take turns with float32, and rates are compared round by round.

With ``--times``, onnxruntime converts tensors on one core, there and back.

    python benchmarks/wire_types.py [--frames 20]
    python benchmarks/wire_types.py --boards [--rounds 3]
    python benchmarks/wire_types.py --times
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from across_boards import Boards, build_for, exit_without_boards, keys_of
from boards_throughput import balanced_cuts
from onnx import version_converter
from pipeline_efficiency import model_of
from timing import console, machine, print_table, ratios, spread

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import Mapping as LayerMapping, MappingEntry
from rankslice.framework.platform import WIRES
from rankslice.frontend.formats import read_model
from rankslice.networks.keras_zoo import keras_names
from rankslice.networks.zoo import zoo_model, zoo_names
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.inspecting.inspect import inspect_model
from rankslice.session.run import prepare, run

NETWORKS = (
    *("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1"),
    *(f"{name}.tflite" for name in keras_names()),
)
OPERATORS = 13
"""Version from which all types can be had, and scales for each channel."""
BOARDS = "boards: {a: {host: localhost, cores: 2}, b: {host: localhost, cores: 2}}\n"

EARLY = 10
"""Layers of SqueezeNet before an early cut: its first module, which makes 1.5 MB."""

TENSOR = (1, 32, 97, 97)
LARGE_TENSOR = f"""
<ir_version: 8, opset_import: ["" : {OPERATORS}]>
large (float[1,32,1,1] x) => (float[1,1,1,1] y)
<int64[4] shape = {{{", ".join(map(str, TENSOR))}}}> {{
[make] t = Expand(x, shape)
[mean] y = ReduceMean<axes = [1, 2, 3]>(t)
}}
"""


def with_new_operators(name: str, folder: Path) -> Path:
    """Return a network of the zoo whose operators have the version that all conversions need."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        model = onnx.load(zoo_model(name))
        onnx.save(version_converter.convert_version(model, OPERATORS), path)
    return path


def write_frames(model: Path, count: int, folder: Path) -> Path:
    shape = read_model(model).graph.inputs[0].shape or ()
    values = np.random.default_rng(0).standard_normal((count, *shape[1:]))
    np.save(folder / "frames.npy", values.astype(np.float32))
    return folder / "frames.npy"


def row(network: str, model: Path, frames: int, wire: str, folder: Path) -> str:
    names = [layer.name for layer in read_model(model).graph.layers]
    middle = len(names) // 2
    inputs = write_frames(model, frames, folder)
    (folder / "boards.yaml").write_text(BOARDS)
    spans = {"a_cpu0": names[: middle + 1], "b_cpu1": names[middle + 1 :]}
    entries = (MappingEntry(key, (f"{of[0]}..{of[-1]}",)) for key, of in spans.items())
    options = BuildOptions(
        wire=wire,  # type: ignore[arg-type]
        quantisation=Quantisation(representative=inputs),
        force=True,
    )
    mapping = LayerMapping("mapping", tuple(entries))
    built = build(model, mapping, folder / "boards.yaml", folder / "out", options)
    prepared = prepare(built.folder, RunOptions((str(inputs),), exact=True))
    verdict = run(prepared, verify=True).summary.verify
    assert verdict is not None
    effect = verdict.unconverted
    assert effect is not None
    errors = [(one.max_error or 0) / (one.value_range or 1) for one in built.plan.conversions]
    return (
        f"{network:21} {wire:9} {len(errors):7} {max(errors):12.2g} {verdict.bit_equal!s:>9}"
        f" {effect.max_rel_diff:12.2g} {effect.agreeing:5} of {effect.rows}"
    )


def errors(frames: int, networks: Sequence[str]) -> None:
    print(
        "network               type      tensors  error/range bit-equal result/range top-1 agrees"
    )
    with tempfile.TemporaryDirectory() as models:
        for network in networks:
            for wire in WIRES[1:]:
                with tempfile.TemporaryDirectory() as folder:
                    is_old = network in zoo_names()
                    model = (
                        with_new_operators(network, Path(models)) if is_old else model_of(network)
                    )
                    try:
                        print(row(network, model, frames, wire, Path(folder)), flush=True)
                    except RankSliceError as error:
                        print(f"{network:21} {wire:9} {error}", flush=True)


def compare(
    boards: Boards,
    what: str,
    model: Path,
    mapping: Mapping[str, Sequence[str]],
    frames: int,
    rounds: int,
    folder: Path,
) -> None:
    """Print the rates of a pair of ranks by type, and how they compare with float32."""
    jobs = {}
    for wire in ("none", "float16", "int8"):
        place = Path(tempfile.mkdtemp(dir=folder))
        quantisation = Quantisation(representative=write_frames(model, 2, place))
        jobs[wire] = build_for(boards, place, model, mapping, wire=wire, quantisation=quantisation)
        jobs[wire].deploy()
    rates: dict[str, list[float]] = {wire: [] for wire in jobs}
    for _ in range(rounds):
        for wire, job in jobs.items():
            rates[wire].append(job.run(frames).throughput_fps or 0.0)
    print_table(
        what,
        ["type", "frames/s", "times float32"],
        [
            [wire, spread(values).text(1), ratios(values, rates["none"]).text()]
            for wire, values in rates.items()
        ],
    )


def on_boards(rounds: int) -> None:
    exit_without_boards()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large = folder / "large.onnx"
        onnx.save(onnx.parser.parse_model(LARGE_TENSOR), large)
        network = with_new_operators("squeezenet", folder)
        names = [layer.name for layer in read_model(network).graph.layers]
        with Boards(2, 100.0) as boards:
            one, other = keys_of(boards)
            pair = {one: ["make"], other: ["mean"]}
            compare(boards, "1.2 MB, 100 Mbit/s", large, pair, 40, rounds, folder)
            early = {one: names[:EARLY], other: names[EARLY:]}
            compare(boards, "SqueezeNet, 100 Mbit/s", network, early, 40, rounds, folder)
        with Boards(2, 1000.0) as boards:
            one, other = keys_of(boards)
            (cut,) = balanced_cuts(inspect_model(network).cuts, 2)
            half = names.index(cut.before)
            halves = {one: names[:half], other: names[half:]}
            compare(boards, "SqueezeNet, 1 Gbit/s", network, halves, 200, rounds, folder)


def times() -> None:
    """Print what onnxruntime takes on one core to convert a tensor, and to convert it back."""
    options = load_onnxruntime().SessionOptions()
    options.intra_op_num_threads = 1
    values = np.random.default_rng(0).standard_normal(TENSOR).astype(np.float32)
    scales = {
        "scale": np.full(TENSOR[1], 0.03, np.float32),
        "zero": np.zeros(TENSOR[1], np.int8),
    }
    numbers = [onnx.numpy_helper.from_array(array, name) for name, array in scales.items()]
    rows = []
    for wire, to in (("float16", 10), ("bfloat16", 16), ("int8", 0)):
        ways = [f"Cast<to = {to}>(x)", "Cast<to = 1>(x)"]
        if wire == "int8":
            ways = [
                f"{op}<axis = 1>(x, scale, zero)" for op in ("QuantizeLinear", "DequantizeLinear")
            ]
        ends = ("float", wire), (wire, "float")
        sent = None
        cells = [wire]
        for way, (source, target) in zip(ways, ends, strict=True):
            shape = ",".join(map(str, TENSOR))
            text = f"convert ({source}[{shape}] x) => ({target}[{shape}] y) {{ y = {way} }}"
            model = onnx.parser.parse_model(
                f'<ir_version: 8, opset_import: ["" : {OPERATORS}]> {text}'
            )
            model.graph.initializer.extend(numbers if wire == "int8" else [])
            session = load_onnxruntime().InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            binding = session.io_binding()
            if sent is None:
                binding.bind_cpu_input("x", values)
            else:
                binding.bind_ortvalue_input("x", sent)
            binding.bind_output("y", "cpu")
            session.run_with_iobinding(binding)
            (sent,) = binding.get_outputs()
            taken_s = []
            for _ in range(100):
                begin = time.perf_counter()
                session.run_with_iobinding(binding)
                taken_s.append(time.perf_counter() - begin)
            cells.append(spread(1e9 * seconds / values.nbytes for seconds in taken_s).text(3))
        rows.append(cells)
    print_table("nanoseconds per byte of float32", ["type", "there", "back"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--models", nargs="+", default=NETWORKS, metavar="NAME|FILE")
    parser.add_argument("--boards", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    console.print(machine())
    if arguments.boards:
        on_boards(arguments.rounds)
    elif arguments.times:
        times()
    else:
        errors(arguments.frames, arguments.models)


if __name__ == "__main__":
    main()
