"""The shipped digit classifier, sliced over interleaved ranks, reads image files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from command_line import rankslice, succeed
from jobs import shared_core_key
from numpy.typing import NDArray

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.networks.digits import (
    digits_labels,
    digits_model,
    heldout_digits,
    write_digit_images,
)

onnxruntime = load_onnxruntime()

IMAGES = 100
RANKS = 3


@dataclass(frozen=True, slots=True)
class Classified:
    """What the command line gave for the first held-out images."""

    shown: str
    summary: dict[str, Any]
    scores: NDArray[np.float32]
    """[frames, 10]"""


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory) -> Classified:
    place = tmp_path_factory.mktemp("digits")
    layers = [layer.name for layer in read_onnx(digits_model()).graph.layers]
    mapping = {shared_core_key(rank): layers[rank::RANKS] for rank in range(RANKS)}
    (place / "mapping.json").write_text(json.dumps(mapping))
    (place / "labels.txt").write_text("\n".join(digits_labels()))
    write_digit_images(place / "images", IMAGES)
    out = place / "out"
    built = rankslice(
        *("build", digits_model(), "--mapping", place / "mapping.json", "--out", out),
        *("--platform", "local", "--share-cores"),
    )
    assert (0, "") == (built.code, built.err)
    ended = succeed(
        *("run", out, "--input", place / "images", "--labels", place / "labels.txt"),
        *("--size", "8x8", "--mean", "0", "--scale", "0.00390625", "--top", "1"),
        *("--verify", "exact", "--json", place / "summary.json"),
    )
    scores = read_results(out / "results.bin").values(0).reshape(IMAGES, -1)
    return Classified(ended.out, json.loads((place / "summary.json").read_text()), scores)


def unsliced_scores() -> NDArray[np.float32]:
    images, _ = heldout_digits()
    session = onnxruntime.InferenceSession(digits_model(), providers=["CPUExecutionProvider"])
    frames = (np.float32(image)[None, None] / np.float32(256) for image in images[:IMAGES])
    return np.concatenate([session.run(None, {"image": frame})[0] for frame in frames])


def test_all_images_come_out_bit_equal(classified: Classified) -> None:
    assert (IMAGES, IMAGES) == (classified.summary["frames"], classified.summary["completed"])
    assert classified.summary["verify"]["bit_equal"]
    assert RANKS == len(classified.summary["ranks"])


def test_each_image_gets_the_digit_of_the_unsliced_model(classified: Classified) -> None:
    expected = unsliced_scores()
    assert expected.argmax(axis=1).tolist() == classified.scores.argmax(axis=1).tolist()
    np.testing.assert_allclose(classified.scores, expected, atol=1e-5)


def test_the_accuracy_is_that_of_the_unsliced_model(classified: Classified) -> None:
    labels = heldout_digits()[1][:IMAGES]
    expected = np.mean(unsliced_scores().argmax(axis=1) == labels)
    accuracy = np.mean(classified.scores.argmax(axis=1) == labels)
    assert expected == accuracy
    assert accuracy >= 0.95


def test_each_shown_frame_has_its_file_and_its_label(classified: Classified) -> None:
    names, best = digits_labels(), classified.scores.argmax(axis=1)
    labels = heldout_digits()[1]
    rows = [line.split() for line in classified.shown.splitlines() if ".png" in line]
    assert len(rows) >= 5
    for frame, row in enumerate(rows):
        assert f"digit_{frame:04}_label{labels[frame]}.png" in row
        assert names[best[frame]] in row
