"""Samples of boards while a job runs, from this machine or from the watches of others."""

from __future__ import annotations

from collections.abc import Callable

from rankslice.backend.runtime.figures.sampling import Sample

OnSample = Callable[[str, Sample], None]
"""Told the name of a board, and what it and its ranks are like now; in threads, once a second."""
