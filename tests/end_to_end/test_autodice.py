"""AutoDiCE's mapping and platform files as its tools write them, and what it cannot do.

The names of layers are those of AlexNet in the ONNX model zoo, the network of AutoDiCE's example;
its sizes are made small.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from real_jobs import verified

from rankslice.framework.errors import RankSliceError
from rankslice.session.building.build import Build, build
from rankslice.session.building.build_options import BuildOptions

ALEXNET = """
<ir_version: 8, opset_import: ["" : 9]>
alexnet (float[1, 3, 67, 67] data_0) => (float[1, 10] prob_1) {
  conv1_1 = Conv <strides = [2, 2]> (data_0, conv1_w_0, conv1_b_0)
  conv1_2 = Relu (conv1_1)
  norm1_1 = LRN <size = 5> (conv1_2)
  pool1_1 = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (norm1_1)
  conv2_1 = Conv <group = 2, pads = [2, 2, 2, 2]> (pool1_1, conv2_w_0, conv2_b_0)
  conv2_2 = Relu (conv2_1)
  norm2_1 = LRN <size = 5> (conv2_2)
  pool2_1 = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (norm2_1)
  conv3_1 = Conv <pads = [1, 1, 1, 1]> (pool2_1, conv3_w_0, conv3_b_0)
  conv3_2 = Relu (conv3_1)
  conv4_1 = Conv <group = 2, pads = [1, 1, 1, 1]> (conv3_2, conv4_w_0, conv4_b_0)
  conv4_2 = Relu (conv4_1)
  conv5_1 = Conv <group = 2, pads = [1, 1, 1, 1]> (conv4_2, conv5_w_0, conv5_b_0)
  conv5_2 = Relu (conv5_1)
  pool5_1 = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (conv5_2)
  OC2_DUMMY_0 = Flatten (pool5_1)
  fc6_1 = Gemm <transB = 1> (OC2_DUMMY_0, fc6_w_0, fc6_b_0)
  fc6_2 = Relu (fc6_1)
  fc6_3, _fc6_mask_1 = Dropout (fc6_2)
  fc7_1 = Gemm <transB = 1> (fc6_3, fc7_w_0, fc7_b_0)
  fc7_2 = Relu (fc7_1)
  fc7_3, _fc7_mask_1 = Dropout (fc7_2)
  fc8_1 = Gemm <transB = 1> (fc7_3, fc8_w_0, fc8_b_0)
  prob_1 = Softmax (fc8_1)
}
"""
SHAPES = {
    "conv1": (8, 3, 5, 5),
    "conv2": (8, 4, 5, 5),
    "conv3": (8, 8, 3, 3),
    "conv4": (8, 4, 3, 3),
    "conv5": (8, 4, 3, 3),
    "fc6": (16, 72),
    "fc7": (16, 16),
    "fc8": (10, 16),
}
HEAD, TAIL = "conv1_1 .. fc6_2", "fc6_3 .. prob_1"


def alexnet() -> onnx.ModelProto:
    """Return AlexNet; its weights are no graph inputs, as in every file of IR 4 or later."""
    model = onnx.parser.parse_model(ALEXNET)
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        scale = np.sqrt(2 / np.prod(shape[1:]))
        weights = random.standard_normal(shape).astype(np.float32) * np.float32(scale)
        bias = random.standard_normal(shape[0]).astype(np.float32) / 10
        model.graph.initializer.append(numpy_helper.from_array(weights, f"{name}_w_0"))
        model.graph.initializer.append(numpy_helper.from_array(bias, f"{name}_b_0"))
    return model


def names(part: str) -> list[str]:
    """Return the first outputs of AlexNet's layers from one to another, as AutoDiCE lists them."""
    outputs = [node.output[0] for node in alexnet().graph.node]
    first, last = part.split(" .. ")
    return outputs[outputs.index(first) : outputs.index(last) + 1]


EXAMPLE = {"lenovo_cpu0": names(HEAD), "lenovo_cpu1": names(TAIL)}


def built(
    folder: Path,
    mapping: dict[str, list[str]],
    platform: str,
    *,
    suffix: str = "txt",
    model: onnx.ModelProto | None = None,
) -> Build:
    """Build a model for a mapping in AutoDiCE's form: JSON on one line."""
    onnx.save(model or alexnet(), folder / "model.onnx")
    (folder / "mapping.json").write_text(json.dumps(mapping))
    (folder / f"platform.{suffix}").write_text(platform)
    files = (folder / name for name in ("model.onnx", "mapping.json", f"platform.{suffix}", "out"))
    return build(*files)


def needs_cores(*cores: int) -> None:
    lacking = set(cores) - os.sched_getaffinity(0)
    if lacking:
        pytest.skip(f"this machine has no core {min(lacking)}")


def test_the_example_runs_unchanged_once_its_board_is_there(tmp_path: Path) -> None:
    needs_cores(0, 1)
    result = built(tmp_path, EXAMPLE, "nx01\nlenovo:localhost\n")
    assert [(0,), (1,)] == [rank.cores for rank in result.plan.ranks]
    assert ["fc6_2"] == [channel.tensor for channel in result.plan.channels]
    assert verified(result.folder, 3).passed


def test_its_tables_are_autodices(tmp_path: Path) -> None:
    out = built(tmp_path, EXAMPLE, "lenovo\n").folder
    expected = {"lenovo_cpu0": {"fc6_2": [1]}, "lenovo_cpu1": {}}
    assert expected == json.loads((out / "sender.json").read_text())
    expected = {"lenovo_cpu0": {}, "lenovo_cpu1": {"fc6_2": [0]}}
    assert expected == json.loads((out / "receiver.json").read_text())


@pytest.mark.ci
def test_boards_with_dashes_and_underscores_run(tmp_path: Path) -> None:
    needs_cores(0, 1)
    mapping = {"pi-4_b-1_cpu0": names(HEAD), "jetson_nx-2_arm1": names(TAIL)}
    boards = "boards: {pi-4_b-1: {host: localhost}, jetson_nx-2: {host: localhost, cores: [0, 1]}}"
    result = built(tmp_path, mapping, boards, suffix="yaml")
    assert ["pi-4_b-1", "jetson_nx-2"] == [rank.board for rank in result.plan.ranks]
    assert ["pi-4_b-1", "jetson_nx-2"] == [package.name for package in result.packages]
    assert verified(result.folder, 3).passed


@pytest.mark.parametrize("suffix", ["txt", "yaml"])
def test_cores_from_ten_on_reach_the_rankfile(tmp_path: Path, suffix: str) -> None:
    platform = {"txt": "xeon x86 slots=24\n", "yaml": "boards: {xeon: {cores: 24}}"}
    clear = {"xeon_cpu10-10": names(HEAD), "xeon_cpu11-13,20": names(TAIL)}
    result = built(tmp_path, clear, platform[suffix], suffix=suffix)
    assert [(10,), (11, 12, 13, 20)] == [rank.cores for rank in result.plan.ranks]
    expected = "rank 0=xeon slot=10\nrank 1=xeon slot=11-13,20\n"
    assert expected == (result.folder / "rankfile").read_text()


@pytest.mark.ci
def test_cores_from_ten_on_run_where_they_are(tmp_path: Path) -> None:
    needs_cores(10, 11)
    mapping = {"xeon_cpu10-10": names(HEAD), "xeon_cpu11-11": names(TAIL)}
    assert verified(built(tmp_path, mapping, "xeon:localhost\n").folder, 3).passed


MANY_KINDS = """
<ir_version: 8, opset_import: ["" : 17]>
kinds (float[1, 8] x) => (float[1, 4] y, float[1, 8] z) <int64[1] four = {4}, int64[1] axis = {1}>
{
  left, right = Split <axis = 1> (x)
  best = ArgMax <axis = 1> (left)
  small = Cast <to = 3> (x)
  high = Greater (right, left)
  scale = Constant <value = float[1, 4] {1.0, 2.0, 3.0, 4.0}> ()
  scaled = Mul (right, scale)
  shifted = Add (scaled, scale)
  index = Cast <to = 1> (best)
  chosen = Where (high, shifted, left)
  y = Add (chosen, index)
  z = Cast <to = 1> (small)
}
"""


@pytest.mark.ci
def test_types_outputs_and_constants_that_autodice_cannot_cut_run(tmp_path: Path) -> None:
    """Two outputs of one layer, int64, int8 and bool, and a constant on both sides of a cut."""
    needs_cores(0, 1)
    mapping = {
        "lenovo_cpu0": ["left", "best", "small", "high", "scaled", "scale"],
        "lenovo_cpu1": ["shifted", "index", "chosen", "y", "z"],
    }
    model = onnx.parser.parse_model(MANY_KINDS)
    result = built(tmp_path, mapping, "lenovo:localhost\n", model=model)
    crossing = {channel.tensor for channel in result.plan.channels}
    types = {tensor.name: tensor.dtype for tensor in result.plan.job.tensors.values()}
    assert {"best", "small", "high", "left", "scaled"} <= crossing
    assert {"int64", "int8", "bool", "float32"} == {types[name] for name in crossing}
    assert verified(result.folder, 20).passed


def test_every_sub_model_declares_its_outputs(tmp_path: Path) -> None:
    out = built(tmp_path, EXAMPLE, "lenovo\n").folder
    for path in (out / "submodels").iterdir():
        onnx.checker.check_model(onnx.load(path), full_check=True)
        assert onnx.load(path).graph.output


VERTICAL = {"lenovo_cpu0": names(HEAD), "lenovo_cpu1": ["conv2_1", "fc6_1", *names(TAIL)]}
"""As in ``vertical.json`` of AutoDiCE's repository."""

CLAMPED = 65535
BOTH = ["lenovo_cpu0", "lenovo_cpu1"]


def split(
    folder: Path, mapping: dict[str, list[str]], splits: dict[str, list[Any]] | None
) -> Build:
    """Build AlexNet for a mapping, and for splits in the form of ``horizontal.json``."""
    onnx.save(alexnet(), folder / "model.onnx")
    (folder / "vertical.json").write_text(json.dumps(mapping))
    (folder / "horizontal.json").write_text(json.dumps(splits))
    (folder / "platform.txt").write_text("lenovo:localhost\n")
    options = BuildOptions(horizontal=folder / "horizontal.json" if splits else None)
    files = (folder / name for name in ("model.onnx", "vertical.json", "platform.txt", "out"))
    return build(*files, options)


def boxes(built: Build, layer: str) -> list[tuple[str, str]]:
    """Return the keys and the boxes of the parts of a layer."""
    made = built.plan.made_by_name
    return [
        (built.plan.ranks[segment.rank].key, made[name].box)
        for segment in built.plan.segments
        for name in segment.layers
        if name in made and (made[name].origin, made[name].kind) == (layer, "part")
    ]


def test_layers_are_split_as_autodices_second_file_says(tmp_path: Path) -> None:
    needs_cores(0, 1)
    result = split(
        tmp_path,
        VERTICAL,
        {
            "conv1_1": ["height", [10, 3000], BOTH],
            "conv2_1": ["lop", [3, CLAMPED], BOTH],
            "conv3_1": ["lip", [2, 3000], BOTH],
            "conv5_1": ["width", [4, 3000], [*reversed(BOTH)]],
            "fc6_1": ["lop", [10, CLAMPED], BOTH],
        },
    )
    first, second = BOTH
    layers = {
        name: sorted(boxes(result, f"{op}_{number}"))
        for name, op, number in (
            ("conv1_1", "Conv", 0),
            ("conv2_1", "Conv", 4),
            ("conv3_1", "Conv", 8),
            ("conv5_1", "Conv", 12),
            ("fc6_1", "Gemm", 16),
        )
    }
    assert layers["conv1_1"] == [(first, "[:,:,0:10,:]"), (second, "[:,:,10:32,:]")]
    # A part with filters of both groups of the convolution is made by two layers.
    assert layers["conv2_1"] == [
        (first, "[:,0:3,:,:]"),
        (second, "[:,3:4,:,:]"),
        (second, "[:,4:8,:,:]"),
    ]
    assert layers["conv3_1"] == [(first, "[:,:,:,:]"), (second, "[:,:,:,:]")]
    assert layers["conv5_1"] == [(first, "[:,:,:,4:7]"), (second, "[:,:,:,0:4]")]
    assert layers["fc6_1"] == [(first, "[:,0:10]"), (second, "[:,10:16]")]
    assert verified(result.folder, 3, exact=False).passed


def test_a_mapping_with_split_layers_asks_for_the_file_that_splits_them(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match=r"Conv_4' is in lenovo_cpu0 too; .*--horizontal"):
        split(tmp_path, VERTICAL, None)


@pytest.mark.parametrize("sizes", [[2, 4], [8, 8]])
def test_sizes_that_do_not_fit_the_layer_are_refused(tmp_path: Path, sizes: list[int]) -> None:
    expected = f"conv3_1: parts of {sizes[0]} and {sizes[1]} do not fit 8"
    with pytest.raises(RankSliceError, match=expected):
        split(tmp_path, EXAMPLE, {"conv3_1": ["lip", sizes, BOTH]})
