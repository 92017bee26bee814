"""Networks as today's exporters write them, sliced at random and run by mpirun.

The files are made by ``tests/models/exports/make_exports.py``.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from exports.make_exports import BASE, EXPORTERS, TINY, export_torch, torch_network
from jobs import shared_core_key
from real_jobs import check_as_deployed, check_exact
from slices import in_turn

from rankslice.framework.graph import Graph
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.session.building.build import BuildOptions, build

pytestmark = pytest.mark.ci

EXPORTS = Path(__file__).parents[1] / "models" / "exports"
MODELS = sorted(EXPORTS.glob("*.onnx"))
FRAMES = 3
SIZES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "bert": {"input_ids": (1, TINY.tokens)},
    "gpt2": {"input_ids": (1, TINY.tokens)},
    "vit": {"pixel_values": (1, 3, TINY.image, TINY.image)},
}
"""Of the networks that leave the batch open."""


def mapping_at_random(graph: Graph, seed: str) -> dict[str, list[str]]:
    """Return a mapping in which two to four ranks take turns, with some layers each time."""
    draw = random.Random(seed)
    layers = list(in_turn(graph))
    ranks = draw.randint(2, 4)
    most = min(12, max(1, len(layers) // 6))
    mapping: dict[str, list[str]] = {shared_core_key(rank): [] for rank in range(ranks)}
    turns = itertools.cycle(mapping.values())
    while layers:
        count = draw.randint(1, most)
        next(turns).extend(layers[:count])
        layers = layers[count:]
    return mapping


def write_frames(graph: Graph, path: Path) -> Path:
    """Write an archive with values for the model's inputs."""
    draw = np.random.default_rng(0)
    arrays = {}
    for tensor in graph.inputs:
        shape = (FRAMES, *(tensor.shape or ()))
        if tensor.name == "attention_mask":  # tokens at the end of a short text do not count
            lengths = draw.integers(4, shape[-1], (*shape[:-1], 1))
            arrays[tensor.name] = (np.arange(shape[-1]) < lengths).astype(tensor.dtype)
        elif tensor.dtype == "int64":
            arrays[tensor.name] = draw.integers(0, TINY.vocabulary, shape)
        else:
            arrays[tensor.name] = draw.standard_normal(shape, np.float32)
    np.savez(path, **arrays)
    return path


def sliced(
    model: Path, folder: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Path, int, Path]:
    """Build a random slicing; return the build folder, the number of frames and their file."""
    graph = read_onnx(model, GivenSizes(shapes)).graph
    mapping = folder / "mapping.json"
    mapping.write_text(json.dumps(mapping_at_random(graph, model.stem)))
    built = build(
        model,
        mapping,
        "local",
        folder / "out",
        BuildOptions(sizes=GivenSizes(shapes), share_cores=True),
    )
    assert len(built.plan.segments) > 2
    return built.folder, FRAMES, write_frames(graph, folder / "frames.npz")


def shapes_of(model: Path) -> Mapping[str, tuple[int, ...]]:
    return SIZES.get(model.stem.partition("-")[2], {})


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_an_export_is_bit_equal(model: Path, tmp_path: Path) -> None:
    check_exact(*sliced(model, tmp_path, shapes_of(model)))


@pytest.mark.parametrize("name", ["torchscript-gpt2", "dynamo-bert"])
def test_an_export_agrees_as_deployed(name: str, tmp_path: Path) -> None:
    model = EXPORTS / f"{name}.onnx"
    check_as_deployed(*sliced(model, tmp_path, shapes_of(model)))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_every_export_agrees_as_deployed(model: Path, tmp_path: Path) -> None:
    check_as_deployed(*sliced(model, tmp_path, shapes_of(model)))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the exporters' own
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_an_export_of_real_size_is_bit_equal_and_agrees_as_deployed(
    name: str, exporter: str, tmp_path: Path
) -> None:
    for package in ("torch", "transformers", "onnxscript"):
        reason = f"{package} is not installed; see tests/models/exports/make_exports.py"
        pytest.importorskip(package, reason=reason)
    model = tmp_path / f"{exporter}-{name}-base.onnx"
    export_torch(torch_network(name, BASE), model, exporter, open_batch=True)
    side = BASE.image
    shapes = {"vit": {"pixel_values": (1, 3, side, side)}}.get(
        name, {"input_ids": (1, BASE.tokens)}
    )
    try:
        job = sliced(model, tmp_path, shapes)
        check_exact(*job)
        check_as_deployed(*job)
    finally:
        shutil.rmtree(tmp_path)  # up to two gigabytes
