"""How a model is profiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankslice.backend.runtime.options import Preprocessing
from rankslice.frontend.formats.given_sizes import NO_SIZES, GivenSizes


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What the options of ``profile`` say."""

    keys: Sequence[str] = ()
    """Mapping keys of the accelerators; empty: those of
    :func:`rankslice.exploration.problem.devices.default_keys`."""
    per_core: bool = False
    """Without keys: each core of a CPU instead of all of them together."""
    sizes: GivenSizes = NO_SIZES
    """What is given of sizes that the model leaves open."""
    inputs: Sequence[str] = ()
    """What names frames like those of a job, which show how open sizes change; empty: none."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    """Of images among them."""
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
