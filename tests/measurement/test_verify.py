"""Results against those of the unsliced model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.measurement.verify import (
    HALF_TOLERANCE,
    TOLERANCE,
    Comparison,
    Verification,
    explained,
)

REFERENCE = np.array([[-1.0, 0.25, 0.5, 3.0]], np.float32)
"""Its range is 4."""

BOXES = np.arange(20, dtype=np.float32).reshape(5, 4)
COUNT = np.array([0, 5])
"""Outputs of a detector: a box a row, and how many there are."""


def compared(reference: Any, actual: Any, *, exact: bool = False, frames: int = 1) -> Verification:
    comparison = Comparison(["y"])
    for _ in range(frames):
        comparison.add([np.asarray(reference)], [np.asarray(actual)])
    return comparison.verdict(exact=exact)


def changed(difference: float) -> NDArray[np.float32]:
    actual = REFERENCE.copy()
    actual[0, 1] += np.float32(difference)
    return actual


def test_equal_values_are_bit_equal_and_pass_either_way() -> None:
    expected = Verification(True, True, 0.0, 0.0, 3)
    for exact in (True, False):
        assert expected == compared(REFERENCE, REFERENCE.copy(), exact=exact, frames=3)


def test_a_difference_is_told_absolutely_and_relative_to_the_references_range() -> None:
    verdict = compared(REFERENCE, changed(0.5))
    assert (0.5, 0.125) == (verdict.max_abs_diff, verdict.max_rel_diff)
    assert "output 'y' differs by up to 0.5, 0.125 of its range" == verdict.complaint
    assert not verdict.passed


def test_the_range_is_that_of_all_frames() -> None:
    comparison = Comparison(["y"])
    comparison.add([REFERENCE], [changed(0.5)])
    comparison.add([REFERENCE + 4], [REFERENCE + 4])
    assert 0.0625 == comparison.verdict(exact=False).max_rel_diff


def test_a_difference_within_the_tolerance_passes_as_deployed_and_fails_exactly() -> None:
    difference = 2 * TOLERANCE
    deployed = compared(REFERENCE, changed(difference))
    assert (True, False, "") == (deployed.passed, deployed.bit_equal, deployed.complaint)
    assert 0.5 * TOLERANCE == pytest.approx(deployed.max_rel_diff, rel=0.01)
    exact = compared(REFERENCE, changed(difference), exact=True)
    assert not exact.passed
    assert "results are not bit-equal to those of the unsliced model" == exact.complaint


def test_a_difference_beyond_the_tolerance_fails() -> None:
    assert not compared(REFERENCE, changed(8 * TOLERANCE)).passed


def test_zero_and_minus_zero_differ_in_a_bit_and_not_in_value() -> None:
    verdict = compared(np.array([0.0, 0.5, 1.0]), np.array([-0.0, 0.5, 1.0]))
    assert (True, False, 0.0) == (verdict.passed, verdict.bit_equal, verdict.max_abs_diff)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_slicing_made_infinite_or_no_number_fails(bad: float) -> None:
    verdict = compared(REFERENCE, changed(bad))
    assert not verdict.passed
    assert "output 'y' differs by up to inf, inf of its range" == verdict.complaint


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reference_that_is_not_finite_proves_nothing(bad: float) -> None:
    verdict = compared(changed(bad), changed(bad))
    assert verdict.bit_equal
    assert not verdict.passed
    assert "the unsliced model's output 'y' is not finite: inconclusive" == verdict.complaint


def test_one_frame_that_is_not_finite_is_enough() -> None:
    comparison = Comparison(["y"])
    for frame in (REFERENCE, changed(np.nan), REFERENCE):
        comparison.add([frame], [frame])
    assert not comparison.verdict(exact=False).passed


def test_tensors_at_cuts_do_not_decide_for_outputs_that_are_not_finite_and_differ() -> None:
    assert compared(changed(np.nan), changed(np.nan)).inconclusive
    comparison = Comparison(["y"])
    for expected, found in ((changed(np.nan), changed(np.nan)), (REFERENCE, 2 * REFERENCE)):
        comparison.add([expected], [found])
    verdict = comparison.verdict(exact=False)
    assert (False, False) == (verdict.passed, verdict.inconclusive)


def test_a_constant_reference_proves_nothing() -> None:
    verdict = compared(np.full((1, 4), 0.5), np.full((1, 4), 0.5), frames=3)
    assert "the unsliced model's output 'y' is constant: inconclusive" == verdict.complaint


def test_an_output_of_one_value_may_vary_from_frame_to_frame() -> None:
    comparison = Comparison(["y"])
    for value in (0.0, 0.5, 1.0):
        comparison.add([np.array([value])], [np.array([value])])
    assert comparison.verdict(exact=True).passed


def test_a_count_may_be_constant_beside_an_output_that_varies() -> None:
    count = np.array([10], np.float32)
    comparison = Comparison(["boxes", "count"])
    comparison.add([REFERENCE, count], [REFERENCE, count])
    assert comparison.verdict(exact=True).passed
    comparison.add([REFERENCE, count], [REFERENCE, count + 1])
    assert "output 'count' differs by up to 1" in comparison.verdict(exact=False).complaint
    alone = compared(count, count)
    assert "the unsliced model's output 'y' is constant: inconclusive" == alone.complaint


def test_a_saturated_reference_proves_nothing() -> None:
    one_hot = np.array([[0.0, 0.0, 1.0, 0.0]], np.float32)
    verdict = compared(one_hot, one_hot, frames=2)
    assert "the unsliced model's output 'y' is saturated: inconclusive" == verdict.complaint


def test_one_frame_in_between_is_enough_not_to_be_saturated() -> None:
    comparison = Comparison(["y"])
    for frame in (np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.4, 1.0])):
        comparison.add([frame], [frame])
    assert comparison.verdict(exact=False).passed


def test_integers_may_not_differ_at_all() -> None:
    verdict = compared(np.array([0, 1000000]), np.array([1, 1000000]))
    assert not verdict.passed
    assert compared(np.array([0, 7]), np.array([0, 7])).passed


def test_integers_too_large_for_floating_point_may_not_differ_either() -> None:
    assert not compared(np.array([0, 2**60]), np.array([0, 2**60 + 1])).passed


def test_integers_and_booleans_may_stand_at_the_ends_of_their_range() -> None:
    for values in (np.array([0, 255, 0, 255], np.uint8), np.array([True, False, False])):
        assert compared(values, values).passed


def test_outputs_that_are_all_constant_prove_nothing() -> None:
    verdict = compared(np.array([3, 3]), np.array([3, 3]))
    assert not verdict.passed
    expected = "all outputs of the unsliced model are constant: inconclusive"
    assert expected == verdict.complaint


def test_without_frames_nothing_is_proven() -> None:
    verdict = Comparison(["y"]).verdict(exact=False)
    assert (False, "no frame was compared") == (verdict.passed, verdict.complaint)


def test_every_output_is_compared_and_all_complaints_are_told() -> None:
    comparison = Comparison(["good", "far", "flat"])
    comparison.add([REFERENCE, REFERENCE, REFERENCE * 0], [REFERENCE, changed(2), REFERENCE * 0])
    assert (
        "output 'far' differs by up to 2, 0.5 of its range;"
        " the unsliced model's output 'flat' is constant: inconclusive"
        == comparison.verdict(exact=False).complaint
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floating_point_types_are_compared_like_float32(dtype: Any) -> None:
    reference, actual = REFERENCE.astype(dtype), changed(0.5).astype(dtype)
    assert compared(reference, reference).passed
    assert 0.125 == compared(reference, actual).max_rel_diff


def test_a_verdict_is_plain_json_even_if_a_difference_is_infinite() -> None:
    record = compared(REFERENCE, changed(np.nan)).to_json()
    assert record == json.loads(json.dumps(record, allow_nan=False))
    assert (None, None, False) == (
        record["max_abs_diff"],
        record["max_rel_diff"],
        record["bit_equal"],
    )


def test_float16_may_differ_by_five_times_its_precision() -> None:
    reference = REFERENCE.astype(np.float16)
    assert compared(reference, changed(0.9 * HALF_TOLERANCE * 4).astype(np.float16)).passed
    assert not compared(reference, changed(1.2 * HALF_TOLERANCE * 4).astype(np.float16)).passed


def test_that_cuts_round_float16_is_told_where_bits_differ() -> None:
    comparison = Comparison(["y"])
    comparison.add([REFERENCE.astype(np.float16)], [changed(0.01).astype(np.float16)])
    assert comparison.verdict(exact=False, rounds=True).passed
    complaint = comparison.verdict(exact=True, rounds=True).complaint
    assert complaint.startswith("results are not bit-equal")
    assert complaint.endswith("so use --verify without exact")


def test_a_given_tolerance_holds_for_floating_point_and_for_integers() -> None:
    for dtype in (np.float32, np.int8):
        comparison = Comparison(["y"])
        comparison.add([np.array([0, 40, 100], dtype)], [np.array([0, 41, 100], dtype)])
        assert not comparison.verdict(exact=False).passed
        assert comparison.verdict(exact=False, tolerance=0.01).passed
        assert not comparison.verdict(exact=False, tolerance=0.009).passed


@pytest.mark.parametrize(
    ("by_engine", "told"),
    [
        (changed(0.8), "changes the unsliced model by 0.2 of the range, which is as much"),
        (changed(0.004), "changes the unsliced model by 0.001 of the range only"),
        (REFERENCE, "does not change the unsliced model"),
        (REFERENCE[:0], "changes shapes of the unsliced model, too"),
    ],
)
def test_a_difference_is_told_to_be_the_engines_or_not(
    by_engine: NDArray[np.float32], told: str
) -> None:
    failed = compared(REFERENCE, changed(1.0))
    verdict = explained(failed, compared(REFERENCE, by_engine))
    assert not verdict.passed
    assert verdict.complaint.startswith(f"{failed.complaint}; the engine's optimisation {told}")


def test_another_shape_is_told_with_its_frame_and_not_compared_further() -> None:
    comparison = Comparison(["boxes", "count"])
    for rows in (4, 2, 0):
        comparison.add([BOXES[:4], COUNT], [BOXES[:rows], COUNT + rows])
    verdict = comparison.verdict(exact=False, tolerance=9.0)
    assert (False, False, False) == (verdict.passed, verdict.bit_equal, verdict.shapes_equal)
    assert (
        "output 'boxes' has shape [2, 4] in frame 1; the unsliced model's has shape [4, 4]"
        " (2 frames with other shapes)" == verdict.complaint
    )
    assert 0.8 == verdict.max_rel_diff


def test_a_difference_in_shape_is_not_explained_by_one_in_values() -> None:
    failed = compared(BOXES[:4], BOXES[:3])
    by_engine = compared(REFERENCE, changed(0.004))
    complaint = explained(failed, by_engine).complaint
    assert "by 0.001 of the range only, so the difference has another cause" in complaint


def test_frames_may_have_any_shapes_and_be_empty() -> None:
    comparison = Comparison(["boxes"])
    for rows in (0, 3, 1, 0, 5):
        comparison.add([BOXES[:rows]], [BOXES[:rows].copy()])
    assert Verification(True, True, 0.0, 0.0, 5) == comparison.verdict(exact=True)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_an_output_that_is_empty_in_every_frame_proves_nothing(dtype: Any) -> None:
    comparison = Comparison(["boxes", "y"])
    for rows in (0, 2):
        empty = np.empty((0, rows), dtype)
        comparison.add([empty, REFERENCE], [empty, REFERENCE])
    verdict = comparison.verdict(exact=True)
    assert (False, True, True) == (verdict.passed, verdict.bit_equal, verdict.shapes_equal)
    expected = "the unsliced model's output 'boxes' is empty in every frame: inconclusive"
    assert expected == verdict.complaint
