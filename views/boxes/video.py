"""``run --output VIDEO``: what a run has found, written on the frames of its video."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.sources import EndOfStreamError
from rankslice.backend.runtime.sources.video_source import VideoSource, load_opencv
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import VIDEO, check_output
from rankslice.session.prepare import PreparedRun, as_user_errors
from rankslice.session.run import FinishedRun
from rankslice.views.boxes.reading import BoxOptions, find_outputs
from rankslice.views.classes import model_names

_CODECS = {".mp4": "mp4v", ".avi": "MJPG"}
"""By the suffix of the file; OpenCV's own wheels have them."""
_USUAL_FPS = 30.0
_TOP = 3

Draw = Callable[[Any, int], None]
"""Draws on an RGB image of pillow what was found in a frame, by its number among the results."""


def is_video(path: Path) -> bool:
    """Tell by its suffix whether a file is a video that can be written."""
    return path.suffix.lower() in _CODECS


class LabelledVideo:
    """A video with the boxes or best classes of each frame, made after a run."""

    def __init__(
        self,
        prepared: PreparedRun,
        target: Path,
        reading: BoxOptions | None,
        names: Sequence[str],
        best: int,
    ) -> None:
        """Check before the run that its frames are a video's, and the file can be made.

        Args:
            prepared: the run.
            target: the file to make.
            reading: how outputs are read that hold boxes; ``None``: classes are written.
            names: of the classes; empty: those that the model's file has, if any.
            best: how many classes are written; 0: three.
        """
        self._target = check_output(target, "--output", VIDEO, may_be_stream=False)
        source = prepared.source
        if not isinstance(source, VideoSource) or prepared.discards:
            problem = "is made from the frames of a video and all results"
            hint = "name a video with --input, and keep the results"
            raise RankSliceError(Mistake(str(target), problem, hint))
        self._source, self._reading = source, reading
        self._outputs = find_outputs(reading, prepared.plan.job.outputs) if reading else ()
        self._names = tuple(names) or model_names(prepared.folder)
        self._best = best or _TOP
        self._fps = source.fps or prepared.options.fps or _USUAL_FPS

    def write(self, finished: FinishedRun, on_drawn: Callable[[int], None]) -> str:
        """Write the video whole or not at all; return a line that says what was written.

        Raises:
            RankSliceError: a frame cannot be read any more, or the video cannot be written.
        """
        target = self._target
        draft = target.with_name(f".{secrets.token_hex(8)}.partial{target.suffix.lower()}")
        try:
            draw = self._drawing(finished)
            with as_user_errors():
                self._write(draft, finished.arrivals, draw, on_drawn)
            check_output(target, "--output", VIDEO, may_be_stream=False)
            draft.replace(target)
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise RankSliceError(Mistake(str(target), problem, "choose another --output")) from None
        finally:
            draft.unlink(missing_ok=True)
        return f"{len(finished.arrivals)} labelled frames, in {target}"

    def _write(
        self, draft: Path, arrivals: Sequence[int], draw: Draw, on_drawn: Callable[[int], None]
    ) -> None:
        """Write the frames of a video that have results."""
        import numpy as np
        from PIL import Image

        cv2 = load_opencv()
        height, width = self._source.size
        codec = cv2.VideoWriter_fourcc(*_CODECS[draft.suffix])
        writer = cv2.VideoWriter(str(draft.absolute()), codec, self._fps, (width, height))
        try:
            if not writer.isOpened():
                problem = f"OpenCV cannot write {width}x{height} pixels as {draft.suffix}"
                mistake = Mistake(str(self._target), problem, "choose another --output")
                raise RankSliceError(mistake)
            for number, index in enumerate(arrivals):
                try:
                    pixels = self._source.pixels(index)
                except EndOfStreamError:
                    mistake = Mistake(self._source.label(index), "cannot be read any more")
                    raise RankSliceError(mistake) from None
                image = Image.fromarray(pixels[:, :, ::-1].copy())
                draw(image, number)
                writer.write(np.asarray(image)[:, :, ::-1].copy())
                on_drawn(number + 1)
        finally:
            writer.release()

    def _drawing(self, finished: FinishedRun) -> Draw:
        """Return a function that draws boxes, or writes the best classes into a corner."""
        from rankslice.backend.runtime.summary.rates import top_classes
        from rankslice.views.boxes.detections import boxes_of
        from rankslice.views.boxes.drawing import draw, draw_classes

        names = self._names
        if self._reading is None:
            scores = finished.results.frames(0)
            return lambda image, number: draw_classes(
                image, top_classes(scores[number], self._best), names
            )
        boxes = boxes_of(self._reading, self._outputs, finished.results)
        fit, size = self._source.fit(), self._source.size
        return lambda image, number: draw(image, boxes.on_image(number, fit, size)[0], names)
