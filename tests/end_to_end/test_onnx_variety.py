"""What ONNX models have besides plain layers, over real ranks; AutoDiCE fails on most of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import rankslice, succeed
from jobs import build_folder, write_mapping
from onnx_models import save

TEXT = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[N, 4] x, int64[N] ids, bool[N, 4] flags)
  => (float[N, 4] y, bool[N, 4] flags, float[4] w, int64[N, 4] counts, float[N, 2] left)
<int64[1] zero = {0}, float[4] w = {0.5, -1.5, 2.0, 3.0}, bool yes = {1}, float[3, 4] table =
  {0.5, 1.0, 1.5, 2.0, -0.5, -1.0, -1.5, -2.0, 0.25, 0.75, 1.25, 1.75}>
{ [scale] k = Constant <value = float[4] {1.5, 2.5, -0.5, 1.0}> ()
  [embed] e = Gather(table, ids)
  [first] a = Mul(x, w)
  [split] left, right = Split <axis = 1> (a)
  [half] r = Cast <to = 10> (right)
  [wide] s = Cast <to = 1> (r)
  [join] j = Concat <axis = 1> (left, s)
  [shift] b = Add(j, k)
  [count] counts = Cast <to = 7> (b)
  [choose] c = Where(flags, b, e)
  [branch] d = If (yes) <
    then_branch = t () => (float[M, 4] p) { p = Mul(c, k) },
    else_branch = o () => (float[M, 4] q) { q = Identity(c) }>
  [nothing] none = Slice(d, zero, zero)
  [after] nobody = Neg(none)
  [rejoin] whole = Concat <axis = 0> (nobody, d)
  [call] f = local.Twice(whole)
  [last] y = Add(f, k) }
<domain: "local", opset_import: ["" : 17]>
Twice (v) => (u) { u = Add(v, v) }
"""

LAYERS = [
    "embed",
    "first",
    "split",
    "half",
    "wide",
    "join",
    "shift",
    "count",
    "choose",
    "branch",
    "nothing",
    "after",
    "rejoin",
    "call",
    "last",
]


@pytest.mark.ci
def test_a_model_with_much_of_what_there_is_runs_over_interleaved_ranks(tmp_path: Path) -> None:
    model = save(tmp_path, TEXT)
    mapping = write_mapping(tmp_path / "mapping.json", {n: i % 3 for i, n in enumerate(LAYERS)})
    out = tmp_path / "out"
    built = rankslice(
        *("build", model, "--mapping", mapping, "--platform", "local", "--share-cores"),
        *("--out", out, "--shape", "x=2,4"),
    )
    assert (0, "") == (built.code, built.err)
    for verify in (("--verify", "exact"), ("--verify",)):
        ended = succeed("run", out, "--frames", "5", *verify)
        assert "bit-equal" in ended.out


@pytest.mark.ci
def test_weights_in_several_files_reach_the_ranks_that_need_them(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 64] x) => (float[1, 64] y)
        { [one] a = MatMul(x, u)  [two] b = MatMul(a, v)
          [three] c = Add(b, w)  [four] y = Tanh(c) }"""
    proto = onnx.parser.parse_model(text)
    draw = np.random.default_rng(0)
    for number, (name, shape) in enumerate({"u": (64, 64), "v": (64, 64), "w": (64,)}.items()):
        values = draw.standard_normal(shape, np.float32) / np.float32(8)
        values.tofile(tmp_path / f"values {number}.bin")
        tensor = proto.graph.initializer.add(
            name=name, data_type=1, dims=values.shape, data_location=1
        )
        tensor.external_data.add(key="location", value=f"values {number}.bin")
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    ranks = {"one": 0, "two": 1, "three": 0, "four": 1}
    folder = build_folder(tmp_path, tmp_path / "model.onnx", ranks)
    succeed("run", folder, "--frames", "5", "--verify", "exact")
    assert 2 == len(list((folder / "submodels").glob("*.data")))


def test_every_sub_model_declares_its_outputs_with_type_and_shape(tmp_path: Path) -> None:
    model = save(tmp_path, TEXT)
    mapping = write_mapping(tmp_path / "mapping.json", {n: i % 3 for i, n in enumerate(LAYERS)})
    succeed(
        *("build", model, "--mapping", mapping, "--platform", "local", "--share-cores"),
        *("--out", tmp_path / "out", "--shape", "x=2,4"),
    )
    files = sorted((tmp_path / "out" / "submodels").iterdir())
    assert len(files) > 3
    for file in files:
        outputs = onnx.load(file).graph.output
        assert outputs
        kinds = [value.type.tensor_type for value in outputs]
        assert all(kind.elem_type and kind.HasField("shape") for kind in kinds)
        # Only the sizes of what has no elements in any frame are open.
        sizes = [dim.dim_value for kind in kinds for dim in kind.shape.dim]
        assert all(sizes) or {"none", "nobody"} & {value.name for value in outputs}
