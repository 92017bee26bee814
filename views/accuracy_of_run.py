"""``run --truth``: how often a job and its unsliced model are right, measured and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.image_input import image_input
from rankslice.backend.runtime.sources.image_source import ImageSource, image_size
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.measurement.accuracy import (
    Accuracy,
    FoundBox,
    box_accuracy,
    check_installed,
    class_accuracy,
    place_of,
)
from rankslice.session.build_folder import reference_model
from rankslice.session.prepare import PreparedRun, as_user_errors
from rankslice.session.truth import OPTION, class_folders, read_truth
from rankslice.session.verification.unsliced_outputs import unsliced_outputs
from rankslice.views.boxes.detections import RunBoxes
from rankslice.views.boxes.labelled_images import image_paths
from rankslice.views.boxes.reading import BoxOptions, find_outputs
from rankslice.views.classes import check_classes, model_names
from rankslice.views.content import Table

if TYPE_CHECKING:
    from rankslice.session.run import FinishedRun

_MIN_SCORE = 0.001
"""Of boxes that count: average precision weighs them by their scores."""
_NAMES = {"top1": "top-1", "top5": "top-5", "map": "mAP, IoU 0.5-0.95", "map50": "mAP, IoU 0.5"}


def labelled_input(options: RunOptions, truth: Path | None) -> RunOptions:
    """Return the options with the images of a truth in folders, if no others are named."""
    folders = class_folders(truth) if truth is not None else ()
    if not folders or options.inputs != RunOptions().inputs:
        return options
    return replace(options, inputs=tuple(map(str, folders)))


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is kept of a frame's outputs."""

    place: int = 0
    """Of the true class."""
    boxes: tuple[NDArray[Any], ...] = ()
    """The outputs that hold them."""


class AccuracyOfRun:
    """The accuracy of a run on labelled images, measured after it."""

    def __init__(
        self, prepared: PreparedRun, truth: Path, names: Sequence[str], boxes: BoxOptions
    ) -> None:
        """Check before the run what can be checked.

        Args:
            prepared: the run.
            truth: what :func:`.read_truth` reads.
            names: of the classes; empty: those that the model's file has, if any.
            boxes: how outputs are read as boxes, if they are.

        Raises:
            RankSliceError: images are not all labelled, or outputs do not fit the labels.
        """
        source, job = prepared.source, prepared.plan.job
        if not isinstance(source, ImageSource):
            given = " ".join(prepared.options.inputs)
            expected = "name images or a folder with --input"
            raise RankSliceError(Mistake(OPTION, f"{given} gives no images", expected))
        self._source, self._prepared = source, prepared
        self._truth = read_truth(truth, tuple(names) or model_names(prepared.folder))
        self._truth.check(source.paths)
        self._reading = replace(boxes, min_score=_MIN_SCORE)
        self._outputs: Sequence[int] = (0,)
        if self._truth.boxes is None:
            check_classes(OPTION, prepared.plan)
            self._classes = prod(job.outputs[0].shape)
            if (most := max(self._truth.classes.values())) >= self._classes:
                found = f"has class {most}, and the model's output {self._classes} values"
                raise RankSliceError(Mistake(str(truth), found, "expected numbers from 0"))
        else:
            if boxes.boxes is None:
                found = "has boxes, and it is not known which outputs have those of the model"
                raise RankSliceError(Mistake(str(truth), found, "name the outputs with --boxes"))
            check_installed()
            self._outputs = find_outputs(boxes, job.outputs)
        purpose = "measure its accuracy"
        self._reference = reference_model(prepared.folder, prepared.plan, purpose, converts=False)

    def measure(
        self, finished: FinishedRun, on_done: Callable[[int], None] = lambda count: None
    ) -> Accuracy:
        """Compare a run's results, and the unsliced model's on the same frames, with the truth.

        Raises:
            RankSliceError: an image cannot be read any more.
        """
        images = image_paths(self._source, finished)
        if not images:
            raise RankSliceError(Mistake(OPTION, "no frame came out", "expected labelled ones"))
        sliced, unsliced = [], []
        results = [finished.results.frames(number) for number in self._outputs]
        with as_user_errors():
            whole = unsliced_outputs(self._prepared, self._reference, finished.arrivals)
            for number, (image, outputs) in enumerate(zip(images, whole, strict=True)):
                sliced.append(self._kept(image, [frames[number] for frames in results]))
                unsliced.append(self._kept(image, [outputs[output] for output in self._outputs]))
                on_done(number + 1)
            if self._truth.boxes is None:
                places, others = ([frame.place for frame in of] for of in (sliced, unsliced))
                return class_accuracy(places, others, self._classes)
            truth = [self._truth.boxes_of(image) or () for image in images]
            return box_accuracy(truth, self._found(images, sliced), self._found(images, unsliced))

    def _kept(self, image: Path, outputs: Sequence[NDArray[Any]]) -> _Frame:
        if self._truth.boxes is not None:
            return _Frame(boxes=tuple(map(np.array, outputs)))
        return _Frame(place_of(outputs[0], self._truth.class_of(image) or 0))

    def _found(self, images: Sequence[Path], frames: Sequence[_Frame]) -> list[list[FoundBox]]:
        job = self._prepared.plan.job
        takes = image_input(job.inputs[0], self._prepared.options.preprocessing)
        specs = [job.outputs[number] for number in self._outputs]
        by_output = [list(of) for of in zip(*(frame.boxes for frame in frames), strict=True)]
        boxes = RunBoxes(self._reading, specs, by_output)
        found = []
        for number, image in enumerate(images):
            size = image_size(image)
            detections, _, _ = boxes.on_image(number, takes.fit(size, image.name), size)
            sides = detections.boxes.copy()
            sides[:, 2:] -= sides[:, :2]
            columns = (detections.classes.tolist(), detections.scores.tolist(), sides.tolist())
            rows = zip(*columns, strict=True)
            found.append([FoundBox(class_, score, tuple(box)) for class_, score, box in rows])
        return found


def accuracy_parts(accuracy: Accuracy) -> Iterator[Table]:
    yield Table(
        f"accuracy on {accuracy.frames} images",
        ("figure", "sliced", "unsliced", "difference", "95 % interval"),
        tuple(
            (
                _NAMES[measure.name],
                f"{measure.sliced:.4f}",
                f"{measure.unsliced:.4f}",
                f"{measure.difference.value:+.4f}",
                f"{measure.difference.low:+.4f} to {measure.difference.high:+.4f}",
            )
            for measure in accuracy.measures
        ),
    )
