"""The best classes of a frame."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from ..job import Tensor


def scores_classes(output: Tensor) -> bool:
    """Return whether an output looks like a classifier's: a number for each of several classes."""
    classes = max(output.shape, default=1)
    if output.is_open or classes < 2 or math.prod(output.shape) != classes:
        return False
    kind = output.storage[0]
    return kind.name == output.dtype and kind.kind in "fiu"  # quantised ones are integers


def top_classes(scores: NDArray[Any], count: int) -> list[tuple[int, float]]:
    """Return the ``count`` best classes with their scores, best first; [1, K] or [K] scores."""
    flat = scores.reshape(-1)
    best = (-flat.astype("float64")).argsort(kind="stable")[:count]
    return [(int(index), float(flat[index])) for index in best]
