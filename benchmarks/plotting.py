"""Figures of the benchmarks, drawn with matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "rankslice",
}


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, *, sharey: bool = False
) -> tuple[Any, Any]:
    """Return a figure of this size in inches, and its axes; end if matplotlib is missing.

    Several axes are an array, by row and column.
    """
    try:
        import matplotlib
    except ImportError:
        sys.exit("a plot needs matplotlib: pip install matplotlib, or leave --plot out")
    matplotlib.use("agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update(_STYLE)
    size = {"figsize": (width, height), "layout": "constrained"}
    return pyplot.subplots(rows, columns, sharey=sharey, **size)


def save_figure(figure: Any, files: Sequence[Path]) -> None:
    """Write a figure, in the format that each file's name says; no date is put into it."""
    for file in files:
        metadata = {"Date": None} if file.suffix == ".svg" else {}
        figure.savefig(file, metadata=metadata, dpi=150)
