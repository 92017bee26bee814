"""``rankslice.build``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankslice.commands.arguments import (
    PIXELS,
    MappingSource,
    Numbers,
    Sizes,
    check_choice,
    checked,
    mapping_from,
    path_of,
    preprocessing_from,
    sizes_from,
)
from rankslice.commands.build.build import Build, BuildOptions, build as build_folder
from rankslice.commands.build.build_options import Quantisation
from rankslice.commands.build.cut_mapping import mapping_of_cuts
from rankslice.commands.planning import MakeMapping
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.frontend.formats.conversion import KINDS

_USUAL, _QUANTISATION = BuildOptions(), Quantisation()


@checked
def build(
    model: str | Path,
    mapping: MappingSource | None = None,
    platform: PlatformSource = "local",
    out: str | Path = "out",
    *,
    cuts: Sequence[int] | None = None,
    surge: str | Path | None = None,
    profile: str | Path | None = None,
    shape: Sizes | None = None,
    at_most: Sizes | None = None,
    share_cores: bool = _USUAL.share_cores,
    source_board: str | None = _USUAL.source_board,
    literally: bool = _USUAL.literally,
    quantize: str = _QUANTISATION.kind,
    representative: str | Path | None = None,
    size: int | tuple[int, int] | None = PIXELS.size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    force: bool = _USUAL.force,
    archive: bool = _USUAL.archive,
    wheels: str | Path = _USUAL.wheels,
    survive: str | Sequence[str] | None = None,
    standby: bool = _USUAL.standby,
) -> Build:
    """Slice a model and write everything that its ranks need; return what was written.

    Example:
        >>> rankslice.build("model.onnx", {"local_cpu0": ["conv1..pool5"], "local_cpu1": ["fc6"]})

    Args:
        model: an ``.onnx``, ``.tflite``, ``.keras`` or ``.h5`` file.
        mapping: a mapping file, or a dictionary: accelerators and their layers.
        platform: a platform file, ``local`` for this machine, or a ``Platform``.
        out: the folder to make; it appears complete or not at all.
        cuts: instead of a mapping: numbers of the layers that start a new slice.
        surge: a second mapping file, for a surge.
        profile: of the model: decides the weights of ranks in turn that name none.
        shape: sizes of all frames where the model leaves them open.
        at_most: largest sizes of any frame where the model leaves them open.
        share_cores: several ranks may have the same cores.
        source_board: board where frames enter; that of the first layer by default.
        literally: Keras: normalisations stay on the ranks of the mapping.
        quantize: Keras: ``float32``, ``float16``, ``dynamic`` or ``int8``.
        representative: file or folder with representative frames.
        size: height and width of these if they are images, in pixels.
        mean: subtracted from their pixels (0 to 255).
        scale: by which pixels are multiplied then.
        force: replace a build folder.
        archive: also write each package as a ``.tar`` file.
        wheels: a folder of wheels for the packages, or ``download``.
        survive: names of boards that may be lost, or ``all``; needs ``profile``.
        standby: check that the boards' memory suffices for all plans at once.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    check_choice("quantize", quantize, KINDS)
    preprocessing = preprocessing_from("nhwc", size, mean, scale)
    return build_folder(
        Path(model),
        _layers(mapping, cuts, share_cores=share_cores),
        platform,
        Path(out),
        BuildOptions(
            quantisation=Quantisation(quantize, path_of(representative), preprocessing),
            sizes=sizes_from(shape, at_most),
            share_cores=share_cores,
            source_board=source_board,
            surge=path_of(surge),
            profile=path_of(profile),
            literally=literally,
            force=force,
            archive=archive,
            wheels=str(wheels),
            survive=(survive,) if isinstance(survive, str) else tuple(survive or ()),
            standby=standby,
        ),
    )


def _layers(
    mapping: MappingSource | None, cuts: Sequence[int] | None, *, share_cores: bool
) -> Path | MakeMapping:
    if (mapping is None) == (cuts is None):
        found = "is missing" if mapping is None else "is given, and so are cuts"
        raise RankSliceError(Mistake("mapping", found, "give either a mapping or cuts"))
    if mapping is not None:
        return mapping_from(mapping)
    return mapping_of_cuts(tuple(cuts or ()), share_cores=share_cores)
