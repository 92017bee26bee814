"""Profiles, read from files."""

from __future__ import annotations

from pathlib import Path

from rankslice.framework.profile import Profile, profile_from_json
from rankslice.framework.reading.read_text import read_text

_MAX_BYTES = 256 << 20
"""A thousand layers on ten kinds of accelerators have less."""


def read_profile(path: Path) -> Profile:
    """Return the profile in a file.

    Raises:
        RankSliceError: it cannot be read, or is none.
    """
    return profile_from_json(read_text(path, "a profile", _MAX_BYTES), str(path))
