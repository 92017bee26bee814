"""Outputs of detectors as boxes in pixels of the image."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.sources.image_input import Fit, image_input
from rankslice.framework.errors import RankSliceError
from rankslice.views.boxes.detections import (
    Detections,
    are_shares,
    corners,
    has_boxes_by_column,
    in_frame,
    in_image,
    overlaps,
    read_detections,
    suppressed,
)
from rankslice.views.boxes.reading import BOX_FORMS, KNOWN_ANCHORS, BoxOptions, find_outputs

BOX = [10.0, 20.0, 40.0, 60.0]
"""Left, top, right and bottom of the box that most tests read."""
IN_FORM = {
    "xyxy": BOX,
    "xywh": [10, 20, 30, 40],
    "cxcywh": [25, 40, 30, 40],
    "yxyx": [20, 10, 60, 40],
}


def reading(outputs: str = "b", form: str = "xyxy", **others: Any) -> BoxOptions:
    return BoxOptions(outputs, form, **others)


def of(boxes: Any, scores: Any, classes: Any) -> Detections:
    return Detections(
        np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(classes, np.int64)
    )


def spec(name: str, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(name, dtype, shape)


@pytest.mark.parametrize("form", BOX_FORMS)
def test_each_form_tells_the_same_box(form: str) -> None:
    assert [BOX] == corners(np.array([IN_FORM[form]], float), form).tolist()


@pytest.mark.parametrize("batch", [(), (1,)])
def test_boxes_scores_and_classes_are_read_with_and_without_a_batch(batch: tuple[int, ...]) -> None:
    outputs = [
        np.array([BOX, BOX], np.float32).reshape(*batch, 2, 4),
        np.array([0.9, 0.1], np.float32).reshape(*batch, 2),
        np.array([3, 4]).reshape(*batch, 2),
    ]
    detections, left_out = read_detections(reading("b,s,c"), outputs)
    assert ([BOX], [3], 0) == (detections.boxes.tolist(), detections.classes.tolist(), left_out)
    assert [0.9] == pytest.approx(detections.scores.tolist())


def test_rows_of_tensorflows_post_processing_count_up_to_its_count() -> None:
    """Boxes as shares, top first; classes as floats; rows beyond the count hold anything."""
    rows = np.array([[[0.2, 0.1, 0.6, 0.4], [9, 9, 9, 9]]], np.float32)
    scores, classes = np.array([[0.8, 0.9]], np.float32), np.array([[2.0, 7.0]], np.float32)
    outputs = [rows, scores, classes, np.array([1.0], np.float32)]
    detections, _ = read_detections(reading("b,s,c,n", "yxyx"), outputs)
    assert are_shares("auto", [detections])
    pixels = in_frame(detections, Fit((100, 200), (100, 200)), shares=True)
    np.testing.assert_allclose([[20, 20, 80, 60]], pixels.boxes, rtol=1e-6)
    assert [2] == detections.classes.tolist()


@pytest.mark.parametrize("shape", [(2, 6), (1, 2, 6)])
def test_a_single_output_has_rows_of_box_score_and_class(shape: tuple[int, ...]) -> None:
    rows = np.array([[*BOX, 0.75, 5], [*BOX, 0.2, 6]], np.float32).reshape(shape)
    detections, _ = read_detections(reading(), [rows])
    assert ([BOX], [0.75], [5]) == (
        detections.boxes.tolist(),
        detections.scores.tolist(),
        detections.classes.tolist(),
    )


def test_no_rows_are_no_detections() -> None:
    detections, left_out = read_detections(reading(), [np.empty((1, 0, 6), np.float32)])
    assert (0, 0) == (len(detections), left_out)
    assert are_shares("auto", [detections])
    assert 0 == len(suppressed(detections, 0.5))


def test_raw_heads_of_both_versions_tell_the_best_class_of_each_box() -> None:
    boxes = np.tile(IN_FORM["cxcywh"], (20, 1))
    by_class = np.zeros((20, 3))
    by_class[7] = 0.1, 0.3, 0.8
    new = np.concatenate([boxes, by_class], 1).T[None].astype(np.float32)
    objectness = np.full((20, 1), 0.5)
    old = np.concatenate([boxes, objectness, by_class], 1)[None].astype(np.float32)
    how = reading(form="cxcywh", nms=0.45)
    for head, score in (new, 0.8), (old, 0.4):
        detections, _ = read_detections(how, [head], by_column=has_boxes_by_column(head.shape))
        assert ([BOX], [2]) == (detections.boxes.tolist(), detections.classes.tolist())
        assert [score] == pytest.approx(detections.scores.tolist())


@pytest.mark.parametrize("boxes", [0, 1, 5, 20])
def test_a_raw_head_with_few_boxes_is_read_as_its_largest_shape_says(boxes: int) -> None:
    head = np.zeros((1, 4 + 8, boxes), np.float32)
    head[:, :4] = np.array(IN_FORM["cxcywh"])[:, None]
    head[:, 4 + 7, :1] = 0.75
    how = reading(form="cxcywh", nms=0.45)
    detections, _ = read_detections(how, [head], by_column=has_boxes_by_column((1, 12, 8400)))
    assert ([7] * min(1, boxes), [0.75] * min(1, boxes)) == (
        detections.classes.tolist(),
        detections.scores.tolist(),
    )
    empty, _ = read_detections(how, [head[:0]], by_column=True)
    assert 0 == len(empty)


def test_a_raw_head_of_version_5_for_one_class_has_the_score_of_the_object() -> None:
    head = np.tile(np.array([25, 40, 30, 40, 0.9], np.float32), (8, 1))[None]
    detections, _ = read_detections(reading(form="cxcywh", nms=0.45), [head])
    assert [0] * 8 == detections.classes.tolist()
    assert [BOX] == suppressed(detections, 0.45).boxes.tolist()


def test_values_that_are_no_numbers_are_left_out_and_counted() -> None:
    rows = np.array(
        [
            *([*BOX, 0.9, 1], [np.nan, 0, 1, 1, 0.9, 1], [*BOX, np.nan, 1], [*BOX, 0.9, -1]),
            *([*BOX, 0.9, np.inf], [*BOX, 0.1, np.nan]),
        ],
        np.float32,
    )
    detections, left_out = read_detections(reading(), [rows])
    assert (1, 4) == (len(detections), left_out)  # the last one has too low a score to matter


def test_outputs_of_different_lengths_are_a_mistake() -> None:
    outputs = [np.zeros((2, 4)), np.zeros(1), np.zeros(2)]
    with pytest.raises(RankSliceError, match="a frame has 2 boxes, 1 scores and 2 classes"):
        read_detections(reading("b,s,c"), outputs)


def test_units_are_told_apart_by_the_largest_coordinate_of_the_run() -> None:
    small, large = of([[-0.1, 0, 1.1, 1]], [1], [0]), of([[0, 0, 3, 4]], [1], [0])
    assert are_shares("auto", [small, small])
    assert not are_shares("auto", [small, large])
    assert not are_shares("pixels", [small])
    assert are_shares("share", [large])


@st.composite
def crowds(draw: st.DrawFn) -> Detections:
    count = draw(st.integers(0, 12))
    whole = st.integers(0, 12)
    corner = draw(arrays(float, (count, 2), elements=whole))
    sides = draw(arrays(float, (count, 2), elements=st.integers(0, 8)))
    scores = draw(arrays(float, count, elements=st.sampled_from([0.3, 0.5, 0.7, 0.9])))
    classes = draw(arrays(np.int64, count, elements=st.integers(0, 1)))
    return Detections(np.concatenate([corner, corner + sides], 1), scores, classes)


def brute_force(detections: Detections, most: float) -> list[int]:
    """Return which boxes stay, by the definition."""
    kept: list[int] = []
    for number in sorted(
        range(len(detections)), key=lambda other: (-detections.scores[other], other)
    ):
        rivals = [
            other for other in kept if detections.classes[other] == detections.classes[number]
        ]
        if all(
            overlap(detections.boxes[number], detections.boxes[other]) <= most for other in rivals
        ):
            kept.append(number)
    return kept


def overlap(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Count unit squares: corners are whole numbers."""
    cells = [
        {(x, y) for x in range(int(c[0]), int(c[2])) for y in range(int(c[1]), int(c[3]))}
        for c in (a, b)
    ]
    union = len(cells[0] | cells[1])
    return len(cells[0] & cells[1]) / union if union else 0.0


@given(crowds(), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_suppression_keeps_what_its_definition_keeps(detections: Detections, most: float) -> None:
    expected = detections.only(np.array(brute_force(detections, most), np.int64))
    actual = suppressed(detections, most)
    np.testing.assert_array_equal(expected.boxes, actual.boxes)
    np.testing.assert_array_equal(expected.scores, actual.scores)
    np.testing.assert_array_equal(expected.classes, actual.classes)


@given(crowds())
def test_overlaps_are_those_of_counted_squares(detections: Detections) -> None:
    for a, b in combinations(range(len(detections)), 2):
        pair = detections.boxes[a], detections.boxes[b]
        assert overlap(*pair) == pytest.approx(overlaps(pair[0], pair[1][None])[0])


@given(
    st.tuples(st.integers(8, 900), st.integers(8, 900)),
    st.sampled_from([None, (64, 96), (80, 100), (200, 97)]),
    arrays(float, 4, elements=st.floats(0.1, 0.9)),
)
def test_a_box_of_the_frame_is_found_again_in_the_image(
    image: tuple[int, int], size: tuple[int, int] | None, shares: NDArray[np.float64]
) -> None:
    """What an image's pixel becomes in the frame is computed here, and undone there."""
    takes = image_input(spec("x", 1, 3, 64, 96), Preprocessing(size=size))
    fit = takes.fit(image, "an image")
    (x, across), (y, down) = np.sort(shares[:2]), np.sort(shares[2:])
    box = np.array([x * image[1], y * image[0], across * image[1], down * image[0]])
    factor = np.array([fit.resized[1] / image[1], fit.resized[0] / image[0]] * 2)
    shift = np.array([(fit.resized[1] - 96) // 2, (fit.resized[0] - 64) // 2] * 2)
    detections, outside = in_image(of([box * factor - shift], [1], [0]), fit, image)
    if outside:
        assert np.isclose(x, across) or np.isclose(y, down)
    else:
        np.testing.assert_allclose(box, detections.boxes[0], atol=1e-6)


def test_boxes_are_clipped_to_the_image_and_those_outside_are_counted() -> None:
    fit = Fit((50, 100), (50, 100))
    boxes = [[-10, -10, 20, 20], [60, 10, 40, 30], [100, 0, 120, 20], [0, 0, 1e30, 1e30]]
    detections, outside = in_image(of(boxes, [1] * 4, [0] * 4), fit, (100, 200))
    assert [[0, 0, 40, 40], [0, 0, 200, 100]] == detections.boxes.tolist()
    assert 2 == outside


def test_outputs_are_found_by_name_also_if_a_name_has_a_comma() -> None:
    outputs = [spec("b", 9, 4), spec("n", 1), spec("s", 9), spec("c", 9, dtype="int64")]
    assert (0, 2, 3) == find_outputs(reading("b,s,c"), outputs)
    assert (0, 2, 3, 1) == find_outputs(reading("b,s,c,n"), outputs)
    assert (1,) == find_outputs(reading("a,b"), [spec("c", 1), spec("a,b", 1, 300, 6)])


@pytest.mark.parametrize(
    ("outputs", "specs", "message"),
    [
        ("z", [spec("b", 9, 4)], "the model has no output 'z'; its outputs are 'b'"),
        ("b,s", [spec("b", 9, 4), spec("s", 9)], "2 outputs are named; expected OUTPUT; BOXES,SC"),
        ("b", [spec("b", 9, 7)], r"output 'b' is float32 \[9, 7\]; expected floats \[N, 6\]"),
        ("b", [spec("b", 2, 9, 6)], r"is float32 \[2, 9, 6\]; expected"),
        ("b", [spec("b", 9, 6, dtype="int8")], "is int8"),
        (
            "b,s,c",
            [spec("b", 9, 5), spec("s", 9, 2), spec("c", 9, dtype="bool")],
            r"(?s)'b' .*\[N, 4\].*'s' .*expected scores as floats.*'c' .*expected classes as num",
        ),
    ],
)
def test_outputs_that_hold_no_boxes_are_a_mistake(
    outputs: str, specs: list[Tensor], message: str
) -> None:
    with pytest.raises(RankSliceError, match=message):
        find_outputs(reading(outputs), specs)


def test_a_raw_head_is_one_output_of_three_axes() -> None:
    how = reading("h", "cxcywh", nms=0.45)
    assert (0,) == find_outputs(how, [spec("h", 1, 84, 8400)])
    with pytest.raises(RankSliceError, match=r"expected floats \[1, 4 \+ classes, boxes\] or"):
        find_outputs(how, [spec("h", 1, 4, 8400)])
    with pytest.raises(RankSliceError, match="--nms: 3 outputs are named; expected YOLO"):
        find_outputs(reading("h,s,c", nms=0.45), [spec("h", 1, 84, 9), spec("s", 9), spec("c", 9)])


def anchored_head(anchors: int, size: int, classes: int) -> NDArray[Any]:
    """Return a head [anchors, rows, columns, 5 + classes] that finds nothing."""
    return np.full((anchors, size, size, 5 + classes), -20.0, np.float32)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("form", ["first", "last", "apart", "last apart"])
def test_raw_heads_of_yolov3_are_read_by_their_anchors(form: str, order: tuple[int, ...]) -> None:
    heads = [anchored_head(3, size, 80) for size in (2, 4, 8)]  # of an input of 64 x 64
    logit = np.log(0.8 / 0.2)
    heads[0][2, 1, 0, :6] = 0, 0, np.log(0.1), np.log(0.2), logit, -logit  # 373 x 326
    heads[2][1, 3, 5, :5] = logit, -logit, 0, 0, 20  # 16 x 30
    heads[2][1, 3, 5, 5 + 7] = 20
    axes = {"first": (0, 3, 1, 2), "last": (1, 2, 0, 3), "last apart": (1, 2, 0, 3)}
    stored = [head.transpose(axes.get(form, (0, 1, 2, 3))) for head in heads]
    if form == "first":
        stored = [head.reshape(-1, *head.shape[2:]) for head in stored]
    if form == "last":
        stored = [head.reshape(*head.shape[:2], -1) for head in stored]
    outputs = [stored[number][None] for number in order]
    how = BoxOptions("a,b,c", min_score=0.1, anchors=KNOWN_ANCHORS["yolov3"])
    assert (0, 1, 2) == find_outputs(
        how, [spec(n, *o.shape) for n, o in zip("abc", outputs, strict=True)]
    )
    detections, _ = read_detections(how, outputs)
    assert sorted([7, 0]) == sorted(detections.classes.tolist())
    by_score = np.argsort(-detections.scores)
    boxes, scores = detections.boxes[by_score], detections.scores[by_score]
    assert [1.0, 0.8 * 0.2] == pytest.approx(scores.tolist(), abs=1e-6)
    x, y = (5 + 0.8) * 8, (3 + 0.2) * 8
    np.testing.assert_allclose([x - 8, y - 15, x + 8, y + 15], boxes[0], rtol=1e-6)
    x, y, w, h = 16, 48, 37.3, 65.2
    np.testing.assert_allclose([x - w / 2, y - h / 2, x + w / 2, y + h / 2], boxes[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 256, 13, 13), r"output 'a' is float32 \[1, 256, 13, 13\]; expected floats \[1, 3 x"),
        ((1, 15, 13, 13), "expected floats"),
        ((255, 13, 13), "expected floats"),
        ((1, 3, 13, 13, 5), "expected floats"),
    ],
)
def test_what_is_no_raw_head_is_a_mistake(shape: tuple[int, ...], message: str) -> None:
    how = BoxOptions("a,b", anchors=KNOWN_ANCHORS["yolov3-tiny"])
    with pytest.raises(RankSliceError, match=message):
        find_outputs(how, [spec("a", *shape), spec("b", 1, 255, 26, 26)])


def test_anchors_are_as_many_for_each_head() -> None:
    how = BoxOptions("a,b", anchors=KNOWN_ANCHORS["yolov3"])
    with pytest.raises(RankSliceError, match="--anchors: has 9 pairs for 2 outputs"):
        find_outputs(how, [spec("a", 1, 255, 13, 13), spec("b", 1, 255, 26, 26)])


@pytest.mark.parametrize("batch", [(), (1,)])
def test_indices_choose_boxes_by_class(batch: tuple[int, ...]) -> None:
    """As the ONNX Model Zoo's YOLOv3 gives them: top first, scores by class, rows of -1."""
    boxes = np.array([[IN_FORM["yxyx"], [0, 0, 9, 9]]], np.float32)
    scores = np.array([[[0.1, 0.2], [0.7, 0.3], [0.6, 0.9]]], np.float32)
    indices = np.array([[0, 1, 0], [0, 2, 0], [-1, -1, -1], [0, 3, 0], [0, 0, 2]], np.int32)
    outputs = [boxes, scores, indices.reshape(*batch, 5, 3)]
    how = reading("b,s,i", "yxyx")
    specs = [spec("b", 1, 2, 4), spec("s", 1, 3, 2), spec("i", *outputs[2].shape, dtype="int32")]
    assert (0, 1, 2) == find_outputs(how, specs)
    detections, _ = read_detections(how, outputs)
    assert ([BOX, BOX], [1, 2]) == (detections.boxes.tolist(), detections.classes.tolist())
    assert [0.7, 0.6] == pytest.approx(detections.scores.tolist())


@pytest.mark.parametrize("is_last", [False, True])
def test_boxes_with_a_score_for_each_class_are_suppressed(is_last: bool) -> None:
    boxes = np.array([[BOX, BOX, [100, 100, 110, 110]]], np.float32)
    scores = np.array([[[0.1, 0.2, 0.0], [0.7, 0.3, 0.5]]], np.float32)
    outputs = [boxes, scores.transpose(0, 2, 1) if is_last else scores]
    how = reading("b,s", nms=0.5)
    specs = [spec("b", 1, 3, 4), spec("s", *outputs[1].shape)]
    assert (0, 1) == find_outputs(how, specs)
    detections, _ = read_detections(how, outputs)
    assert [1, 1, 1] == detections.classes.tolist()
    assert [0.7, 0.5] == pytest.approx(suppressed(detections, 0.5).scores.tolist())
