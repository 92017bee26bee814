"""Times of spans as sums over their layers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def summed_spans(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (kinds, layers, layers): the sum over each span, by its first and last layer.

    Entries with the last layer before the first mean nothing.

    Args:
        times_s: (kinds, layers), in seconds; inf where a kind cannot run a layer, and so no span
            with it.
    """
    can_run = np.isfinite(times_s)
    sums, refused = (
        np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
        for values in (np.where(can_run, times_s, 0.0), ~can_run)
    )
    spans: NDArray[np.float64] = sums[:, np.newaxis, 1:] - sums[:, :-1, np.newaxis]
    spans[refused[:, np.newaxis, 1:] > refused[:, :-1, np.newaxis]] = np.inf
    return spans
