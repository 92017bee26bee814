"""Boxes and labels drawn on images."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.wording import printable
from rankslice.views.boxes.detections import Detections
from rankslice.views.classes import class_name

_GOLDEN = 0.618033988749895
"""Step from the hue of a class to that of the next: neighbours differ, and none comes again."""
_MAX_NAME = 40
_MIN_TEXT = 9
"""Height in pixels; smaller letters cannot be read."""

Colour = tuple[int, int, int]


def draw(image: Any, detections: Detections, names: Sequence[str]) -> None:
    """Draw boxes in pixels of an RGB image of pillow, with names and scores, the best ones last."""
    from PIL import ImageDraw

    line = max(1, round((image.width * image.height) ** 0.5 / 200))
    canvas, font = ImageDraw.Draw(image), _font(image)
    ordered = detections.only(detections.scores.argsort(kind="stable"))
    edges, classes = [*map(_edges, ordered.boxes)], ordered.classes.tolist()
    for edge, number in zip(edges, classes, strict=True):
        canvas.rectangle(edge, outline=colour_of(number), width=line)
    # Afterwards, so that no line crosses a text.
    for edge, number, score in zip(edges, classes, ordered.scores, strict=True):
        text = _text(names, number, score)
        _write(canvas, text, edge[:2], colour_of(number), font, image.size)


def draw_classes(image: Any, best: Sequence[tuple[int, float]], names: Sequence[str]) -> None:
    """Write classes with their scores on an RGB image of pillow, one below the other."""
    from PIL import ImageDraw

    canvas, font = ImageDraw.Draw(image), _font(image)
    line = round(1.5 * font.size)
    for place, (number, score) in enumerate(best, 1):
        text = _text(names, number, score)
        _write(canvas, text, (0, place * line), colour_of(number), font, image.size)


def _font(image: Any) -> Any:
    from PIL import ImageFont

    side = (image.width * image.height) ** 0.5
    return ImageFont.load_default(max(_MIN_TEXT, round(side / 26)))


def _text(names: Sequence[str], number: int, score: float) -> str:
    return f"{printable(class_name(names, number))[:_MAX_NAME]} {score:.2f}"


def _edges(box: NDArray[np.float64]) -> tuple[int, int, int, int]:
    """Return the first and the last pixel of a box; it has one, however small it is."""
    left, top, right, bottom = map(int, box)
    return left, top, max(left, right - 1), max(top, bottom - 1)


def _write(
    canvas: Any,
    text: str,
    corner: tuple[int, int],
    colour: Colour,
    font: Any,
    size: tuple[int, int],
) -> None:
    """Write a text on a ground of the box's colour, above the corner if there is room."""
    _, above, width, below = map(round, canvas.textbbox((0, 0), text, font=font))
    margin = max(1, round((below - above) / 6))
    wide, tall = width + 2 * margin, below - above + 2 * margin
    left = max(0, min(corner[0], size[0] - wide))
    top = corner[1] - tall if corner[1] >= tall else max(0, min(corner[1], size[1] - tall))
    canvas.rectangle((left, top, left + wide - 1, top + tall - 1), fill=colour)
    red, green, blue = colour
    is_light = 0.3 * red + 0.59 * green + 0.11 * blue > 140
    ink = (0, 0, 0) if is_light else (255, 255, 255)
    canvas.text((left + margin, top + margin - above), text, fill=ink, font=font)


def colour_of(number: int) -> Colour:
    """Return the colour of a class."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + number * _GOLDEN) % 1, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)
