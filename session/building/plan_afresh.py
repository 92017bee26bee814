"""Plans for the loss of more boards than a build folder is prepared for."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from rankslice.backend.runtime.job import Compression
from rankslice.framework.specs.read_platform import read_platform
from rankslice.frontend.formats import read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session.build_folder import SURVIVAL_FILES, read_plan, unsliced_model
from rankslice.session.building.build import build
from rankslice.session.building.build_options import BuildOptions, Quantisation
from rankslice.session.building.planning import read_profile
from rankslice.session.building.replanning import Replanning
from rankslice.session.survival import (
    PROFILE,
    REPRESENTATIVE,
    BuiltWith,
    read_survival,
    without,
)


def plan_afresh(folder: Path, lost: frozenset[str]) -> Path:
    """Build for the boards that are left when some are lost; return the build folder.

    It is made in ``without/`` of the build folder, where it stays.

    Raises:
        RankSliceError: no mapping can run on the boards that are left; or the model has changed
            or is not there any more.
    """
    survival = read_survival(folder)
    known = survival.fallback(lost)
    if known is not None:
        return known
    files, kept = folder / SURVIVAL_FILES, survival.record.options
    model = unsliced_model(folder, read_plan(folder), "survive the loss of further boards")
    platform = files / kept.platform
    options = _options(files, kept)
    replanning = Replanning(
        read_model(model, options.sizes),
        read_platform(platform),
        read_profile(files / PROFILE),
        platform,
        str(files / PROFILE),
        kept.source_board,
        kept.most_turns,
    )
    out = without(folder, lost)
    build(model, replanning.mapping(lost), platform, out, options)
    return out


def _options(files: Path, kept: BuiltWith) -> BuildOptions:
    frames = files / REPRESENTATIVE
    return BuildOptions(
        quantisation=Quantisation(
            kept.quantize,
            frames.resolve() if frames.is_symlink() else None,
            kept.pixels,
        ),
        sizes=GivenSizes(kept.shape, kept.at_most),
        share_cores=kept.share_cores,
        source_board=kept.source_board,
        literally=kept.literally,
        compress=cast("Compression | None", kept.compress),
    )
