"""What the comparison with the unsliced model takes into account."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from damage import change_weight
from jobs import build_folder
from line_graphs import line_graph
from plans import routed
from recorded import record

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.plan import Plan
from rankslice.measurement.verify import Verification
from rankslice.session.run import prepare
from rankslice.session.shared_options import Launching
from rankslice.session.verification.comparison import _rounds, find_reference, verified

CHAIN = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")
WHOLE, HALVES = {"conv": 0, "relu": 0}, {"conv": 0, "relu": 1}


def in_float16(plan: Plan, name: str) -> Plan:
    """Return a plan in which one tensor is of the type float16."""

    def changed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            replace(tensor, dtype="float16") if tensor.name == name else tensor
            for tensor in tensors
        )

    job = plan.job
    job = replace(job, inputs=changed(job.inputs), between=changed(job.between))
    return replace(plan, job=job)


@pytest.mark.parametrize(("usual", "surge"), [(WHOLE, HALVES), (HALVES, WHOLE)])
def test_cuts_of_either_route_may_round(usual: dict[str, int], surge: dict[str, int]) -> None:
    plan = routed(CHAIN, usual, surge)
    assert not _rounds(plan)
    assert _rounds(in_float16(plan, "a"))
    assert not _rounds(in_float16(routed(CHAIN, WHOLE, WHOLE), "x"))


def folder_of(folder: Path, layers: str) -> Path:
    """Build a model of the layers ``a`` and ``y``, each on a rank of its own."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,8] x) => (float[1,8] y) {{ {layers} }}"""
    model = onnx.parser.parse_model(text)
    weight = onnx.numpy_helper.from_array(np.full(8, 100, np.float32), "w")
    model.graph.initializer.append(weight)
    return build_folder(folder, model, {"a": 0, "y": 1})


def verdict_of(folder: Path, exact: bool = False) -> Verification:
    """Run a folder in this process, and compare it with its model."""
    options = RunOptions(frames=3, exact=exact)
    results = record(folder, folder.with_name("ran"), options)
    prepared = prepare(folder, replace(options, record=folder.with_name("ran")))
    prepared = replace(prepared, launching=Launching(Path("no/mpirun")))  # it cannot run again
    return verified(prepared, find_reference(prepared), results, range(len(results)))


ONES = "[a] a = Mul(x, w) [y] y = Softmax <axis = 0> (a)"
SATURATED = "[a] a = Mul(x, w) [y] y = Sign(a)"


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("layers", [ONES, SATURATED])
def test_tensors_at_cuts_decide_where_outputs_prove_nothing(
    tmp_path: Path, layers: str, exact: bool
) -> None:
    verdict = verdict_of(folder_of(tmp_path, layers), exact)
    assert (True, True, "") == (verdict.passed, verdict.bit_equal, verdict.complaint)
    expected = "inconclusive; the tensors at the cuts agree, and vary (frame 0)"
    assert verdict.first_difference.endswith(expected)


def test_a_difference_that_outputs_hide_is_found_at_the_cut(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ONES)
    (submodel,) = folder.glob("submodels/*[!2].0.onnx")
    change_weight(submodel, 0.5)
    verdict = verdict_of(folder)
    assert (False, True) == (verdict.passed, verdict.bit_equal)
    assert "the unsliced model's output 'y' is constant: inconclusive" == verdict.complaint
    assert "first difference: tensor 'a' that rank 0 sends to rank 1" in verdict.first_difference


def test_tensors_that_are_constant_too_prove_nothing(tmp_path: Path) -> None:
    verdict = verdict_of(folder_of(tmp_path, "[a] a = Sub(x, x) [y] y = Cos(a)"))
    assert not verdict.passed
    assert "tensor 'a' at a cut is constant, too (frame 0)" == verdict.first_difference


def test_random_numbers_without_a_seed_are_named(tmp_path: Path) -> None:
    # In one process, onnxruntime's seed is the same for layers of one number in their model.
    noisy = "[a] a = Relu(x) [y] y = RandomNormalLike {} (a)"
    verdict = verdict_of(folder_of(tmp_path / "unseeded", noisy.format("")))
    assert not verdict.passed
    reason = "; layer 'y' draws random numbers without a seed, so no two runs agree"
    assert verdict.complaint.endswith(reason)
    assert "" == verdict.first_difference
    assert verdict_of(folder_of(tmp_path / "seeded", noisy.format("<seed = 1.0>"))).passed
