"""Frames for the networks of ``open_sizes``, whose sizes change from frame to frame.

They are drawn without PyTorch, so that tests can draw them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frame = Mapping[str, NDArray[Any]]
"""Values by the name of an input."""

VOCABULARY = 48
TOKENS = 24
"""Largest length of a text."""
TEXTS = 4
"""Largest number of texts in a batch."""
FIXED_IMAGE = 96
"""Height and width in pixels where the model fixes them."""
LARGEST_IMAGE = 96
"""Height and width at most where the model leaves them open."""
MEL_BANDS = 16
AUDIO = 120
"""Largest number of windows of an audio spectrogram; odd and even ones."""


def scene(draw: np.random.Generator, height: int, width: int) -> NDArray[np.float32]:
    """Return an image of shape (1, 3, height, width), values 0 to 1, with 0 to 12 soft blobs."""
    rows = np.arange(height, dtype=np.float32)[:, None]
    columns = np.arange(width, dtype=np.float32)
    image = np.full((3, height, width), draw.uniform(0.3, 0.7), np.float32)
    for _ in range(draw.integers(0, 13)):
        centre_y, centre_x = draw.uniform(0, 1, 2) * (height, width)
        spread = draw.uniform(3, 10)
        distance = (rows - centre_y) ** 2 + (columns - centre_x) ** 2
        colour = draw.uniform(-1, 1, (3, 1, 1)).astype(np.float32)
        image += colour * np.exp(-distance / np.float32(2 * spread**2))
    return np.clip(image, 0, 1)[None]


def _fixed_image(draw: np.random.Generator) -> Frame:
    return {"image": scene(draw, FIXED_IMAGE, FIXED_IMAGE)}


def _open_image(draw: np.random.Generator) -> Frame:
    height, width = draw.integers(1, LARGEST_IMAGE, 2, endpoint=True)
    return {"image": scene(draw, int(height), int(width))}


def _tiled_image(draw: np.random.Generator) -> Frame:
    """Return an image whose sizes are multiples of 32."""
    height, width = 32 * draw.integers(1, LARGEST_IMAGE // 32, 2, endpoint=True)
    return {"image": scene(draw, int(height), int(width))}


def _texts(draw: np.random.Generator) -> Frame:
    """Return a batch of texts; shorter ones are padded at the end."""
    texts = int(draw.integers(1, TEXTS, endpoint=True))
    tokens = int(draw.integers(1, TOKENS, endpoint=True))
    lengths = draw.integers(1, tokens, (texts, 1), endpoint=True)
    return {
        "input_ids": draw.integers(0, VOCABULARY, (texts, tokens)),
        "attention_mask": (np.arange(tokens) < lengths).astype(np.int64),
    }


def _audio(draw: np.random.Generator) -> Frame:
    windows = int(draw.integers(1, AUDIO, endpoint=True))
    values = draw.standard_normal((1, MEL_BANDS, windows), np.float32)
    return {"mel": values}


FRAMES: Mapping[str, Callable[[np.random.Generator], Frame]] = {
    "ssdlite": _fixed_image,
    "yolov8": _fixed_image,
    "yolo11": _tiled_image,
    "faster_rcnn": _open_image,
    "detr": _open_image,
    "bert": _texts,
    "t5": _texts,
    "lraspp": _open_image,
    "whisper": _audio,
}
"""What draws a frame, by the name of a network."""


_IMAGE = {"image": (1, 3, LARGEST_IMAGE, LARGEST_IMAGE)}
_BATCH = {"input_ids": (TEXTS, TOKENS), "attention_mask": (TEXTS, TOKENS)}

LARGEST: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "ssdlite": {},
    "yolov8": {},
    "yolo11": _IMAGE,
    "faster_rcnn": _IMAGE,
    "detr": _IMAGE,
    "bert": _BATCH,
    "t5": _BATCH,
    "lraspp": _IMAGE,
    "whisper": {"mel": (1, MEL_BANDS, AUDIO)},
}
"""The largest shapes of inputs with open sizes, by the name of a network."""


def frame_of(network: str, index: int) -> Frame:
    """Return the frame of that number, the same each time."""
    return FRAMES[network](np.random.default_rng([index, len(network)]))
