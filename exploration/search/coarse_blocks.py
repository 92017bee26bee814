"""Blocks of layers between which little is sent: a first, coarse search moves them as a whole.

The AutoDiCE project's later article (IoT-J) searches in two stages; so does ``--coarse``: first it
moves blocks, then layers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def coarse_blocks(
    work: NDArray[np.float64], crossing: NDArray[np.float64], most: int
) -> NDArray[np.int64]:
    """Return the number of the block that each layer belongs to: (layers,), ascending from 0.

    The work is divided into ``most`` equal parts; each border may then move by half a part, to
    where the fewest bytes cross.

    Args:
        work: (layers,) how much each layer has to do, in any unit.
        crossing: (layers - 1,) bytes that cross between each layer and the next.
        most: number of blocks; there are fewer where one layer has the work of several parts.
    """
    done = np.cumsum(work, dtype=np.float64)
    done /= done[-1] or 1
    # Of each border, the end of a part that is nearest: border i is between layers i and i + 1.
    parts = done[:-1] * most
    near = np.floor(parts + 0.5).astype(np.int64)
    borders = np.zeros(len(work), np.int64)
    for part in range(1, most):
        candidates = np.flatnonzero(near == part)
        if len(candidates):
            off = np.abs(parts[candidates] - part)
            borders[candidates[np.lexsort((off, crossing[candidates]))[0]] + 1] = 1
    return np.cumsum(borders)
