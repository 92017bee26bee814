"""The library of the generated driver: all code that runs on a board.

It needs the standard library, numpy, mpi4py and one inference engine. A copy of this folder
lies beside every ``driver.py``.
"""

from .driver import main
from .tables import Rank, Receive, Segment, Send

__all__ = ["Rank", "Receive", "Segment", "Send", "main"]
