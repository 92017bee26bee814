"""Profiles, read from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rankslice.framework.errors import Mistake
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.plan import Plan
from rankslice.framework.profile import OTHER_SIZES, Profile, profile_from_json
from rankslice.framework.wording import quoted

_MAX_BYTES = 256 << 20
"""A thousand layers on ten kinds of accelerators have less."""


def read_profile(path: Path) -> Profile:
    """Return the profile in a file.

    Raises:
        RankSliceError: it cannot be read, or is none.
    """
    return profile_from_json(read_text(path, "a profile", _MAX_BYTES), str(path))


def other_model(plan: Plan, profile: Profile, source: str) -> Iterator[Mistake]:
    """Yield why a profile does not belong to the model of a plan."""
    if profile.model.sha256 != plan.model.sha256:
        same = profile.model.name == plan.model.name
        found = f"is a profile of {'another ' if same else ''}{quoted(profile.model.name)}"
        yield Mistake(source, found, f"profile {quoted(plan.model.name)} as it is now")
        return
    tensors = plan.job.tensors
    if found := profile.model.other_sizes(tensors[name] for name in plan.inputs):
        yield Mistake(source, found, OTHER_SIZES)
