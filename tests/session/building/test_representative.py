"""``build --representative`` for a model with tensors of which no bound is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from needed import NEEDS_FIRST_CORES
from onnx_models import save

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session.building.build import Build, BuildOptions, build
from rankslice.session.building.build_options import Quantisation

COUNTED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1] n) => (float[A] y)
{ [make] made = ConstantOfShape(n)  [one] h = Exp(made)  [two] y = Neg(h) }"""
"""A vector as long as the frame says."""


def built(folder: Path, counts: list[int], sizes: GivenSizes, model: str = COUNTED) -> Build:
    mapping = folder / "mapping.json"
    mapping.write_text(json.dumps({"local_cpu0": ["make", "one"], "local_cpu1": ["two"]}))
    frames = folder / "frames.npz"
    np.savez(frames, n=np.array(counts, np.int64).reshape(-1, 1))
    options = BuildOptions(
        quantisation=Quantisation(representative=frames), sizes=sizes, share_cores=True
    )
    return build(save(folder, model), mapping, "local", folder / "out", options)


@NEEDS_FIRST_CORES
def test_sizes_seen_on_frames_become_bounds_with_a_margin_and_a_warning(tmp_path: Path) -> None:
    done = built(tmp_path, [3, 0, 8], GivenSizes())
    tensors = {tensor.name: tensor for tensor in done.plan.job.tensors.values()}
    assert [((12,), True)] * 2 == [
        (tensors[name].shape, tensors[name].is_open) for name in ("h", "y")
    ]
    assert any("'h'" in text and "--at-most h=12" in text for text in done.warnings)


@NEEDS_FIRST_CORES
def test_a_given_bound_comes_before_what_frames_show(tmp_path: Path) -> None:
    done = built(tmp_path, [3, 5], GivenSizes(at_most={"made": (20,), "h": (20,), "y": (20,)}))
    assert {(20,)} == {tensor.shape for tensor in done.plan.job.tensors.values() if tensor.is_open}
    assert () == done.warnings


@NEEDS_FIRST_CORES
def test_it_is_told_where_a_bound_is_from(tmp_path: Path) -> None:
    sizes = GivenSizes(at_most={"made": (20,), "h": (50,)})
    origins = {tensor.name: origin for tensor, origin in built(tmp_path, [3], sizes).bounds}
    assert {"h": "--at-most", "y": "model"} == origins


def test_an_empty_file_of_frames_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="--representative"):
        built(tmp_path, [], GivenSizes())


FIXED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1] n) => (int64[1] y)
{ [make] made = Neg(n)  [one] h = Abs(made)  [two] y = Neg(h) }"""


def test_frames_that_cannot_be_read_are_refused_though_nothing_needs_them(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="--representative"):
        built(tmp_path, [], GivenSizes(), FIXED)


def test_a_model_that_onnxruntime_cannot_run_shows_no_bounds(tmp_path: Path) -> None:
    strange = COUNTED.replace('["" : 17]', '["" : 17, "my.ops" : 1]').replace("Exp", "my.ops.Twist")
    with pytest.raises(RankSliceError, match="--representative: onnxruntime cannot run") as caught:
        built(tmp_path, [3, 5], GivenSizes(), strange)
    assert "/tmp/" not in str(caught.value).replace(str(tmp_path), "")
