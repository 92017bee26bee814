"""Accuracy is what a count by hand gives, on the same arrays."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.measurement.accuracy import (
    FoundBox,
    TrueBox,
    box_accuracy,
    class_accuracy,
    place_of,
)

THRESHOLDS = np.linspace(0.5, 0.95, 10)


def test_top_k_is_what_a_count_by_hand_gives() -> None:
    random = np.random.default_rng(0)
    scores = random.integers(0, 8, (2, 200, 10))  # many are equal
    truth = random.integers(0, 10, 200)
    places = [
        [place_of(frame, int(true)) for frame, true in zip(of, truth, strict=True)] for of in scores
    ]
    accuracy = class_accuracy(*places, 10)
    for measure, best in zip(accuracy.measures, (1, 5), strict=True):
        order = np.argsort(-scores, axis=2, kind="stable")[:, :, :best]
        shares = (order == truth[:, None]).any(2).mean(1)
        assert shares.tolist() == [measure.sliced, measure.unsliced]
        assert measure.difference.value == pytest.approx(shares[0] - shares[1])
        assert measure.difference.low < measure.difference.value < measure.difference.high
    assert ["top1", "top5"] == [measure.name for measure in accuracy.measures]


def test_a_model_of_few_classes_has_no_top_5() -> None:
    assert ["top1"] == [measure.name for measure in class_accuracy([0, 1], [0, 0], 3).measures]


@pytest.mark.parametrize("lost", [0, 30])
def test_the_interval_of_a_share_holds_the_difference_as_often_as_it_says(lost: int) -> None:
    # One answer in ten, say, is wrong in one of the models alone.
    random = np.random.default_rng(1)
    true = -lost / 300
    held = 0
    for _ in range(400):
        wrong = random.random(300) < lost / 300
        (measure, *_) = class_accuracy([*wrong.astype(int)], [0] * 300, 10).measures
        held += measure.difference.low <= true <= measure.difference.high
    assert held >= 0.93 * 400


Boxes = list[list[FoundBox]]


def scenes(random: np.random.Generator) -> tuple[list[list[TrueBox]], Boxes]:
    """Return objects of three classes in 20 images, and what a poor detector finds of them."""
    truth: list[list[TrueBox]] = []
    found: Boxes = []
    for _ in range(20):
        corners = random.uniform(0, 80, (4, 2))
        sizes = random.uniform(10, 40, (4, 2))
        boxes = np.concatenate([corners, sizes], axis=1)
        classes = random.integers(0, 3, 4)
        pairs = list(zip(boxes.tolist(), classes.tolist(), strict=True))
        truth.append([TrueBox(class_, tuple(box)) for box, class_ in pairs])
        moved = boxes + random.normal(0, 3, boxes.shape)
        seen = [
            FoundBox(class_, float(random.random()), tuple(box))
            for box, (_, class_) in zip(moved.tolist(), pairs, strict=True)
            if random.random() < 0.8
        ]
        ghost = FoundBox(int(random.integers(3)), float(random.random()), (1.0, 2.0, 20.0, 20.0))
        found.append([*seen, ghost])
    return truth, found


def overlap(box: tuple[float, ...], other: tuple[float, ...]) -> float:
    sides = [
        max(0.0, min(box[a] + box[a + 2], other[a] + other[a + 2]) - max(box[a], other[a]))
        for a in (0, 1)
    ]
    both = sides[0] * sides[1]
    return both / (box[2] * box[3] + other[2] * other[3] - both)


def by_hand(truth: list[list[TrueBox]], found: Boxes, least: float) -> float:
    """Return the mean over classes of the precision at 101 recalls, made monotonous."""
    values = []
    for class_ in sorted({true.class_ for image in truth for true in image}):
        ranked = sorted(
            ((box.score, image, box.box) for image, of in enumerate(found) for box in of
             if box.class_ == class_),
            reverse=True,
        )  # fmt: skip
        free = {
            (image, number): true.box
            for image, of in enumerate(truth)
            for number, true in enumerate(of)
            if true.class_ == class_
        }
        count, right = len(free), []
        for _, image, box in ranked:
            overlaps = {at: overlap(box, of) for at, of in free.items() if at[0] == image}
            best = max(overlaps, key=lambda at: overlaps[at], default=None)
            is_right = best is not None and overlaps[best] >= least
            right.append(is_right)
            if best is not None and is_right:
                del free[best]
        hits = np.cumsum(right)
        precision = hits / np.arange(1, len(hits) + 1)
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        recall: NDArray[np.float64] = hits / count
        at = np.searchsorted(recall, np.linspace(0, 1, 101), side="left")
        values.append(np.append(precision, 0)[at].mean())
    return float(np.mean(values))


def test_average_precision_is_what_a_count_by_hand_gives() -> None:
    random = np.random.default_rng(2)
    truth, found = scenes(random)
    other = [of[1:] for of in found]
    accuracy = box_accuracy(truth, found, other)
    whole, half = accuracy.measures
    for measured, of in ((half.sliced, found), (half.unsliced, other)):
        assert measured == pytest.approx(by_hand(truth, of, 0.5), abs=1e-9)
    for measured, of in ((whole.sliced, found), (whole.unsliced, other)):
        expected = np.mean([by_hand(truth, of, least) for least in THRESHOLDS])
        assert measured == pytest.approx(expected, abs=1e-9)
    assert whole.difference.low < whole.sliced - whole.unsliced < whole.difference.high
    assert 0 < half.difference.low
    assert accuracy == box_accuracy(truth, found, other)


def test_objects_that_are_left_out_neither_help_nor_harm() -> None:
    box = (10.0, 10.0, 20.0, 20.0)
    truth = [[TrueBox(0, (60.0, 60.0, 10.0, 10.0)), TrueBox(0, box, is_left_out=True)]]
    right = FoundBox(0, 0.9, (60.0, 60.0, 10.0, 10.0))
    accuracy = box_accuracy(truth, [[right, FoundBox(0, 0.95, box)]], [[right]])
    assert [(1, 1)] * 2 == [
        (round(of.sliced, 9), round(of.unsliced, 9)) for of in accuracy.measures
    ]


def test_nothing_found_is_an_accuracy_of_0() -> None:
    truth = [[TrueBox(0, (0.0, 0.0, 5.0, 5.0))], []]
    assert [0.0, 0.0] == [of.sliced for of in box_accuracy(truth, [[], []], [[], []]).measures]
