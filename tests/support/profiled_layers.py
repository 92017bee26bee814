"""Profiles of chains of layers that all take the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.profile import (
    MeasuredBoard,
    Profile,
    ProfiledKind,
    ProfiledModel,
    Span,
    profile_to_json,
)


def profile_of(model: Path, layers: int, *kinds: ProfiledKind) -> str:
    """Return the text of a profile; ``kinds``: of :func:`kind_of`."""
    names = tuple(f"L{number}" for number in range(layers))
    return profile_to_json(Profile(ProfiledModel(model.name, file_sha256(model), (), names), kinds))


def kind_of(layers: int, milliseconds: Sequence[float], *keys: str) -> ProfiledKind:
    """Return what was measured of accelerators on which every layer took the same."""
    spans = tuple(
        Span(first, last, tuple(round(1e6 * ms * (last - first + 1)) for ms in milliseconds),
             (len(milliseconds),), None, None, None, False)
        for first in range(layers)
        for last in range(first, layers)
    )  # fmt: skip
    board = MeasuredBoard("local", "here", "x86_64", "", "3.11", 10**9, (), None, None)
    return ProfiledKind(
        keys[0], keys, "cpu", 1, "onnxruntime", "1", (), (), False, (), 10**6, board, spans
    )
