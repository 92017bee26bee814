"""How ``build`` converts models, as its options say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sources import EndOfStreamError, Source, accepted, open_source
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats import Model, format_of
from rankslice.frontend.formats.conversion import KINDS, Conversion

_MAX_FRAMES = 1000
_QUANTIZE, _REPRESENTATIVE = "--quantize", "--representative"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What the options of ``build`` say about the types of converted sub-models."""

    kind: str = "float32"
    """One of :data:`rankslice.frontend.formats.conversion.KINDS`."""
    representative: Path | None = None
    """For ``int8``, and for bounds of an ONNX model: an ``.npz`` file, or a folder of images."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    """Of these images."""


def conversion_of(model: Model, wanted: Quantisation) -> Conversion:
    """Return how a model is to be converted.

    Raises:
        RankSliceError: the options do not fit the model, or each other; or frames cannot be read.
    """
    raise_mistakes(_mistakes(model, wanted))
    if wanted.representative is None or not format_of(model.graph).is_converted:
        return Conversion(wanted.kind)
    specs = [Tensor(each.name, each.dtype, each.shape or ()) for each in model.graph.inputs]
    try:
        options = RunOptions((str(wanted.representative),), preprocessing=wanted.preprocessing)
        source = open_source(options, specs)
    except JobError as error:
        raise RankSliceError(Mistake(_REPRESENTATIVE, str(error))) from None
    if not source.can_replay:  # each sub-model is converted with the same frames
        found = f"frames of {wanted.representative} cannot be read twice"
        raise RankSliceError(Mistake(_REPRESENTATIVE, found, f"expected {accepted()}"))
    return Conversion(wanted.kind, lambda: _frames(source, specs))


def _mistakes(model: Model, wanted: Quantisation) -> Iterator[Mistake]:
    if wanted.kind not in KINDS:
        found = f"{quoted(wanted.kind)} is not a number format"
        yield Mistake(_QUANTIZE, found, f"expected {joined(KINDS, 'or')}")
    is_int8 = wanted.kind == "int8"
    possible = format_of(model.graph).conversions
    if format_of(model.graph).shows_bounds and wanted.kind == "float32":
        return
    if not possible and (wanted.kind != "float32" or wanted.representative):
        option = _REPRESENTATIVE if wanted.representative else _QUANTIZE
        found = f"{model.graph.name} is not converted: its slices are copies of its parts"
        yield Mistake(option, found, "quantise the model before it is sliced")
    elif possible and wanted.kind in KINDS and wanted.kind not in possible:
        found = f"slices of {model.graph.name} cannot be {wanted.kind}"
        yield Mistake(_QUANTIZE, found, f"expected {joined(possible, 'or')}")
    elif is_int8 and wanted.representative is None:
        expected = f"give {_REPRESENTATIVE} with representative frames"
        yield Mistake(_QUANTIZE, "int8 needs the range of each activation", expected)
    elif not is_int8 and wanted.representative is not None:
        found = f"has no effect for {wanted.kind}"
        yield Mistake(_REPRESENTATIVE, found, f"give {_QUANTIZE} int8, too")


def _frames(source: Source, specs: Sequence[Tensor]) -> Iterator[list[NDArray[Any]]]:
    frames = _MAX_FRAMES if source.frames is None else min(source.frames, _MAX_FRAMES)
    for index in range(frames):
        slots = [np.empty(spec.shape, spec.dtype) for spec in specs]
        try:
            source.read(index, slots)
        except EndOfStreamError:
            return
        yield slots
