"""``rankslice.inspect``."""

from __future__ import annotations

from pathlib import Path

from rankslice.commands.arguments import (
    MappingSource,
    Sizes,
    checked,
    mapping_from,
    path_of,
    sizes_from,
)
from rankslice.commands.inspect.inspect import Inspection, inspect_model
from rankslice.framework.specs.read_platform import PlatformSource


@checked
def inspect(
    model: str | Path,
    mapping: MappingSource | None = None,
    platform: PlatformSource | None = None,
    *,
    surge: str | Path | None = None,
    profile: str | Path | None = None,
    shape: Sizes | None = None,
    at_most: Sizes | None = None,
) -> Inspection:
    """Return what a model consists of and costs, where it can be cut, and the plan of a mapping.

    Args:
        model: a model file, or a folder made by ``build``.
        mapping: a mapping file, or a dictionary: the plan that ``build`` would make is inspected.
        platform: the boards of the mapping; this machine by default.
        surge: a second mapping file, for a surge.
        profile: of the model: decides the weights of ranks in turn that name none.
        shape: sizes of all frames where the model leaves them open.
        at_most: largest sizes of any frame where the model leaves them open.

    Raises:
        RankSliceError: the file is no model, or one that cannot be sliced; or there are mistakes
            in the mapping or the platform.
    """
    return inspect_model(
        Path(model),
        sizes_from(shape, at_most),
        None if mapping is None else mapping_from(mapping),
        platform,
        path_of(surge),
        path_of(profile),
    )
