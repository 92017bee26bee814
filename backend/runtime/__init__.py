"""The library of the generated driver: all code that runs on a board.

It needs the standard library, numpy, mpi4py and one inference engine. A copy of this folder
lies beside every ``driver.py``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driver import main
    from .job import Facts, Job, Rank, Receive, Route, Segment, Send, Tensor, Turns

__all__ = ["Facts", "Job", "Rank", "Receive", "Route", "Segment", "Send", "Tensor", "Turns", "main"]


def __getattr__(name: str) -> Any:
    """Import what a driver uses when it does: other programs import single modules only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A rank's numpy multiplies no matrices, so it need not start a thread per core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from . import driver, job

    return getattr(driver if name == "main" else job, name)
