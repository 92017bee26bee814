"""Networks whose tensors change their size from frame to frame, as PyTorch's exporters write them.

The files and the frames are made by ``tests/models/exports/make_open_sizes.py`` and
``open_frames.py``.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports.open_frames import LARGEST, frame_of
from in_process import run_in_process
from jobs import shared_core_key
from numpy.typing import NDArray
from real_jobs import check_exact
from slices import in_turn

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.graph import Graph
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.session.building.build import Build, BuildOptions, build

MODELS = sorted((Path(__file__).parents[1] / "models/exports/open_sizes").glob("*.onnx"))
DETECTORS = ("detr", "faster_rcnn", "ssdlite", "yolo11", "yolov8")
Ranks = list[list[str]]


def network_of(model: Path) -> str:
    return model.stem.partition("-")[2]


def session(model: Path | bytes) -> Any:
    """Load a model as it is run for a comparison of bits."""
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def contiguous(layers: Sequence[str], draw: random.Random) -> Ranks:
    """Give each of two to four ranks layers that follow each other."""
    cuts = sorted(draw.sample(range(1, len(layers)), draw.randint(1, 3)))
    return [list(layers[a:b]) for a, b in itertools.pairwise((0, *cuts, len(layers)))]


def interleaved(layers: Sequence[str], draw: random.Random) -> Ranks:
    """Let two to four ranks take turns, with some layers each time."""
    ranks: Ranks = [[] for _ in range(draw.randint(2, 4))]
    turns = itertools.cycle(ranks)
    rest = list(layers)
    while rest:
        count = draw.randint(1, max(1, len(layers) // 10))
        next(turns).extend(rest[:count])
        rest = rest[count:]
    return ranks


def one_by_one(layers: Sequence[str], draw: random.Random) -> Ranks:
    """Let two or three ranks take turns with each layer."""
    ranks = draw.randint(2, 3)
    return [list(layers[rank::ranks]) for rank in range(ranks)]


def keep_empty_inside(graph: Graph, ranks: Ranks) -> None:
    """Move layers that read a tensor which is always empty to its maker: it can cross no cut."""
    maker = {
        tensor: layer.name
        for layer in graph.layers
        for tensor in layer.outputs
        if tensor.shape is not None and 0 in tensor.shape
    }
    for layer in graph.layers:
        for made_by in [maker[tensor] for tensor in layer.inputs if tensor in maker]:
            home = next((names for names in ranks if made_by in names), None)
            if home is not None:
                next(names for names in ranks if layer.name in names).remove(layer.name)
                home.append(layer.name)


def sliced(
    model: Path, folder: Path, deal: Callable[[Sequence[str], random.Random], Ranks]
) -> Build:
    """Build a slicing at random for ranks of this machine; bounds are given of inputs alone."""
    sizes = GivenSizes(at_most=LARGEST[network_of(model)])
    graph = read_onnx(model, sizes).graph
    ranks = deal(list(in_turn(graph)), random.Random(model.stem))
    keep_empty_inside(graph, ranks)
    mapping = {shared_core_key(rank): layers for rank, layers in enumerate(ranks)}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    options = BuildOptions(sizes=sizes, share_cores=True)
    return build(model, folder / "mapping.json", "local", folder / "out", options)


def write_frames(model: Path, path: Path, frames: int) -> Path:
    """Write an archive with an entry for each frame and input."""
    values: dict[str, NDArray[Any]] = {}
    for index in range(frames):
        frame = frame_of(network_of(model), index)
        values |= {f"{name}/{index}": value for name, value in frame.items()}
    np.savez(path, **values)  # type: ignore[arg-type]
    return path


def check_bits(model: Path, built: Build, frames: int) -> None:
    """Run a job in this process; expect the unsliced model's shapes and bits."""
    archive = write_frames(model, built.folder / "frames.npz", frames)
    results = built.folder / "results.bin"
    run_in_process(
        built.folder,
        RunOptions(inputs=(str(archive),), frames=frames, exact=True, results=results),
    )
    found = read_results(results)
    assert frames == len(found)
    unsliced = session(model)
    for index in range(frames):
        expected = unsliced.run(None, dict(frame_of(network_of(model), index)))
        for output, value in enumerate(expected):
            assert value.shape == found.frames(output)[index].shape
            assert value.tobytes() == found.frames(output)[index].tobytes()


def check_job(model: Path, built: Build, frames: int) -> None:
    """Run a job under mpirun with ``--verify exact``."""
    archive = write_frames(model, built.folder / "frames.npz", frames)
    check_exact(built.folder, frames, archive)


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_frames_change_what_leaves_a_network(model: Path) -> None:
    unsliced = session(model)
    network = network_of(model)
    frames = 30
    shapes = [
        unsliced.run(None, dict(frame_of(network, index)))[0].shape for index in range(frames)
    ]
    assert len(set(shapes)) > 5
    if network in DETECTORS:
        counts = [shape[0] for shape in shapes]
        assert 0 in counts
        assert 10 < max(counts) <= 50


@pytest.mark.ci
@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_a_network_is_bit_equal_when_cut_anywhere(model: Path, tmp_path: Path) -> None:
    built = sliced(model, tmp_path, interleaved)
    assert any(tensor.symbols for tensor in built.plan.job.tensors.values())
    check_bits(model, built, 25)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_a_network_is_bit_equal_when_cut_everywhere(model: Path, tmp_path: Path) -> None:
    check_bits(model, sliced(model, tmp_path, one_by_one), 25)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "deal"),
    [
        ("dynamo-faster_rcnn", interleaved),
        ("torchscript-ssdlite", interleaved),
        ("dynamo-yolo11", contiguous),
        ("torchscript-t5", interleaved),
    ],
)
def test_a_job_is_bit_equal_for_frames_of_any_size(
    name: str, deal: Callable[[Sequence[str], random.Random], Ranks], tmp_path: Path
) -> None:
    model = next(path for path in MODELS if path.stem == name)
    check_job(model, sliced(model, tmp_path, deal), 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("deal", [contiguous, interleaved])
@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_a_job_is_bit_equal_for_a_thousand_frames(
    model: Path, deal: Callable[[Sequence[str], random.Random], Ranks], tmp_path: Path
) -> None:
    check_job(model, sliced(model, tmp_path, deal), 1000)
