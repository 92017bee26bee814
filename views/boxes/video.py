"""``run --output VIDEO``: what a run has found, written on the frames of its video."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.sources import EndOfStreamError
from rankslice.backend.runtime.sources.opencv import load_opencv
from rankslice.backend.runtime.sources.video_source import VideoSource
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import VIDEO, check_output
from rankslice.session.prepare import PreparedRun, as_user_errors
from rankslice.session.run import FinishedRun
from rankslice.views.boxes.names import model_names
from rankslice.views.boxes.reading import Reading, find_outputs

_CODECS = {".mp4": "mp4v", ".avi": "MJPG"}
"""By the suffix of the file; OpenCV's own wheels have them."""
_USUAL_FPS = 30.0
_TOP = 3

Draw = Callable[[Any, int], None]
"""Draws on an RGB image of pillow what was found in a frame, by its number among the results."""


@dataclass(frozen=True, slots=True)
class VideoWork:
    """A video that is to be made after a run."""

    source: VideoSource
    target: Path
    reading: Reading | None
    """How outputs are read that hold boxes; ``None``: classes are written."""
    outputs: tuple[int, ...]
    """Numbers of these outputs."""
    names: tuple[str, ...]
    """Of the classes; empty: unknown."""
    best: int
    """How many classes a frame has."""
    fps: float

    def name_of(self, number: int) -> str:
        """Return the name of a class, or its number."""
        return self.names[number] if number < len(self.names) else str(number)


def is_video(path: Path) -> bool:
    """Return whether a file of this name is a video that can be made."""
    return path.suffix.lower() in _CODECS


def prepare_video(
    prepared: PreparedRun, target: Path, reading: Reading | None, names: Sequence[str], best: int
) -> VideoWork:
    """Check before the run what can be checked of what follows it.

    Args:
        prepared: the run.
        target: the file to make.
        reading: how outputs are read that hold boxes; ``None``: classes are written.
        names: of the classes; empty: those that the model's file has, if any.
        best: how many classes are written; 0: three.

    Raises:
        RankSliceError: frames are none of a video, outputs hold no boxes, or no file can be made.
    """
    target = check_output(target, "--output", VIDEO, may_be_stream=False)
    if not isinstance(prepared.source, VideoSource) or prepared.discards:
        found = "is made from the frames of a video and all results"
        hint = "name a video with --input, and keep the results"
        raise RankSliceError(Mistake(str(target), found, hint))
    outputs = prepared.plan.job.outputs
    options = prepared.options
    return VideoWork(
        prepared.source,
        target,
        reading,
        find_outputs(reading, outputs) if reading else (),
        tuple(names) or model_names(prepared.folder),
        best or _TOP,
        prepared.source.fps or options.fps or _USUAL_FPS,
    )


def write_video(work: VideoWork, finished: FinishedRun, on_drawn: Callable[[int], None]) -> str:
    """Write the video whole or not at all; return a line that says what was written.

    Raises:
        RankSliceError: a frame cannot be read any more, or the video cannot be written.
    """
    draft = work.target.with_name(f".{secrets.token_hex(8)}.partial{work.target.suffix.lower()}")
    try:
        draw = _boxes(work, finished) if work.reading else _classes(work, finished)
        with as_user_errors():
            count = _write(draft, work, finished.arrivals, draw, on_drawn)
        check_output(work.target, "--output", VIDEO, may_be_stream=False)
        draft.replace(work.target)
    except OSError as error:
        found = f"cannot be written: {error.strerror}"
        raise RankSliceError(Mistake(str(work.target), found, "choose another --output")) from None
    finally:
        draft.unlink(missing_ok=True)
    return f"{count} labelled frames, in {work.target}"


def _write(
    draft: Path,
    work: VideoWork,
    arrivals: Sequence[int],
    draw: Draw,
    on_drawn: Callable[[int], None],
) -> int:
    """Write the frames of a video that have results; return how many there are."""
    import numpy as np
    from PIL import Image

    cv2 = load_opencv()
    height, width = work.source.size
    codec = cv2.VideoWriter_fourcc(*_CODECS[draft.suffix])
    writer = cv2.VideoWriter(str(draft.absolute()), codec, work.fps, (width, height))
    try:
        if not writer.isOpened():
            refused = f"OpenCV cannot write {width}x{height} pixels as {draft.suffix}"
            raise RankSliceError(Mistake(str(work.target), refused, "choose another --output"))
        for number, index in enumerate(arrivals):
            try:
                pixels = work.source.pixels(index)
            except EndOfStreamError:
                found = Mistake(work.source.label(index), "cannot be read any more")
                raise RankSliceError(found) from None
            image = Image.fromarray(pixels[:, :, ::-1].copy())
            draw(image, number)
            writer.write(np.asarray(image)[:, :, ::-1].copy())
            on_drawn(number + 1)
    finally:
        writer.release()
    return len(arrivals)


def _classes(work: VideoWork, finished: FinishedRun) -> Draw:
    """Return what writes the best classes into a corner."""
    from rankslice.backend.runtime.summary.texts import top_classes
    from rankslice.views.boxes.drawing import draw_classes

    scores = finished.results.frames(0)

    def draw(image: Any, number: int) -> None:
        draw_classes(image, top_classes(scores[number], work.best), work.name_of)

    return draw


def _boxes(work: VideoWork, finished: FinishedRun) -> Draw:
    """Return what draws the boxes."""
    from rankslice.views.boxes.detections import (
        Detections,
        are_shares,
        has_boxes_by_column,
        in_frame,
        in_image,
        read_detections,
        suppressed,
    )
    from rankslice.views.boxes.drawing import draw as draw_boxes

    reading = work.reading
    assert reading is not None
    by_column = has_boxes_by_column(finished.results.outputs[work.outputs[0]].shape)
    frames = [finished.results.frames(output) for output in work.outputs]

    def found_in(number: int) -> Detections:
        outputs = [values[number] for values in frames]
        return read_detections(reading, outputs, by_column=by_column)[0]

    def all_found() -> Iterator[Detections]:
        return map(found_in, range(len(finished.arrivals)))

    shares, fit = are_shares(reading.unit, all_found()), work.source.fit()

    def draw(image: Any, number: int) -> None:
        found = in_frame(found_in(number), fit, shares=shares)
        if reading.overlap is not None:
            found = suppressed(found, reading.overlap)
        found, _ = in_image(found, fit, work.source.size)
        draw_boxes(image, found, work.name_of)

    return draw
