"""How a model is profiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What the options of ``profile`` say."""

    keys: Sequence[str] = ()
    """Mapping keys of the accelerators; empty: those of
    :func:`rankslice.exploration.problem.devices.default_keys`."""
    per_core: bool = False
    """Without keys: each core of a CPU instead of all of them together."""
    shapes: Mapping[str, tuple[int, ...]] | None = None
    """Sizes of model inputs that the model leaves open."""
    alone: bool = False
    """Keep the board's other accelerators idle."""
    fresh: bool = False
    """Ignore existing measurements."""
    again: bool = False
    """Measure everything again, and keep existing measurements."""
    venv: bool = False
    """Make the boards' Python environments."""
    wheels: str = ""
    """A folder of wheels, or ``download``: what the environments are made of."""
    ssh_config: Path | None = None
    """Handed to ssh as ``-F``."""
