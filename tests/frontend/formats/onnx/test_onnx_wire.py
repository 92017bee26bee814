from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import numpy_helper
from onnx_models import LIGHT_MODELS
from sample_model import SAMPLE_MODEL

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.wire import WireFile, scan_model, varint

CONTENT = SAMPLE_MODEL.SerializeToString()
bounded = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def reads_or_refuses(path, content):
    path.write_bytes(content)
    with contextlib.suppress(RankSliceError):
        assert isinstance(read_onnx(path), OnnxModel)


@bounded
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path, content):
    reads_or_refuses(tmp_path / "model.onnx", content)


@bounded
@given(length=st.integers(0, len(CONTENT) - 1))
def test_a_truncated_model_is_refused(tmp_path, length):
    reads_or_refuses(tmp_path / "model.onnx", CONTENT[:length])


@bounded
@given(changes=st.dictionaries(st.integers(0, len(CONTENT) - 1), st.integers(0, 255), max_size=4))
def test_a_model_with_changed_bytes_is_read_or_refused(tmp_path, changes):
    content = bytearray(CONTENT)
    for position, value in changes.items():
        content[position] = value
    reads_or_refuses(tmp_path / "model.onnx", bytes(content))


@given(number=st.integers(0, 2**63))
def test_a_number_is_encoded_as_protobuf_does(number):
    proto = onnx.ModelProto(ir_version=number % 2**63)
    assert proto.SerializeToString() == b"\x08" + varint(number % 2**63)


@pytest.mark.parametrize("path", LIGHT_MODELS[:3], ids=lambda path: path.stem)
def test_the_skeleton_differs_from_the_model_in_large_payloads_only(path):
    with WireFile(path) as file:
        skeleton = onnx.ModelProto.FromString(scan_model(file).skeleton)
    model = onnx.load(path)
    assert list(model.graph.node) == list(skeleton.graph.node)
    assert list(model.graph.initializer) == list(skeleton.graph.initializer)
    assert list(model.opset_import) == list(skeleton.opset_import)


def test_the_skeleton_lacks_large_payloads_wherever_they_stand(tmp_path):
    large = numpy_helper.from_array(np.ones(100_000, np.float32), "large")
    constant = onnx.helper.make_node("Constant", [], ["c"], value=large)
    branch = onnx.helper.make_graph([constant], "b", [], [], [large])
    model = onnx.ModelProto(
        ir_version=8,
        graph=onnx.helper.make_graph(
            [constant, onnx.helper.make_node("If", ["x"], ["y"], then_branch=branch)],
            "g",
            [],
            [],
            [large],
            sparse_initializer=[onnx.SparseTensorProto(values=large, indices=large, dims=[9])],
        ),
        functions=[onnx.FunctionProto(name="f", node=[constant])],
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with WireFile(path) as file:
        skeleton = scan_model(file).skeleton
    assert path.stat().st_size > 2_000_000
    assert len(skeleton) < 2_000
    inner = onnx.ModelProto.FromString(skeleton).graph.node[1].attribute[0].g
    assert [100_000] == list(inner.initializer[0].dims)
    assert "large" == inner.node[0].attribute[0].t.name


def test_a_length_beyond_the_end_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08" + b"\x3a" + varint(1 << 62) + b"\x0a")
    with pytest.raises(RankSliceError, match="longer than its container"):
        read_onnx(path)


def test_graphs_nested_without_end_are_refused(tmp_path):
    inner = b"\x12" + varint(2000) + bytes(2000)
    for _ in range(120):
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            inner = tag + varint(len(inner)) + inner
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08\x3a" + varint(len(inner)) + inner)
    with pytest.raises(RankSliceError, match="nested too deeply"):
        read_onnx(path)


def test_a_model_of_gigabytes_is_read_in_little_memory(tmp_path):
    path = tmp_path / "model.onnx"
    size = 3 << 30
    weight = onnx.TensorProto(name="w", data_type=1, dims=[size // 4]).SerializeToString()
    weight += b"\x4a" + varint(size)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1])],
        [onnx.helper.make_tensor_value_info("y", 1, [size // 4])],
    ).SerializeToString()
    graph += b"\x2a" + varint(len(weight) + size) + weight
    head = onnx.ModelProto(ir_version=8, opset_import=[onnx.helper.make_opsetid("", 17)])
    start = head.SerializeToString() + b"\x3a" + varint(len(graph) + size) + graph
    path.write_bytes(start)
    os.truncate(path, len(start) + size)
    program = """
import resource, sys
from pathlib import Path
from rankslice.frontend.formats.onnx.reader import read_onnx
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(read_onnx(Path(sys.argv[1])).graph.weights[0].nbytes)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    nbytes, kilobytes = map(int, done.stdout.split())
    assert size == nbytes
    assert kilobytes < 20_000
