"""The format of parts files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rankslice.backend.runtime.job import Rank
from rankslice.framework.engines import engine_for
from rankslice.framework.errors import Mistake
from rankslice.framework.graph import Layer
from rankslice.frontend.formats import find_format, format_named, format_of
from rankslice.frontend.formats.model_format import Format
from rankslice.frontend.formats.onnx.quantised_cuts import quantised_cut_warnings
from rankslice.frontend.formats.parts.reader import PartsModel, for_engines, parts_files, read_parts
from rankslice.frontend.formats.parts.writer import own_cuts, parts_submodel
from rankslice.frontend.partition.partition import Partition


def _macs(layer: Layer) -> int | None:
    assert layer.part
    return format_named(layer.part.format).macs(layer)


def _mistakes(model: PartsModel, cut: Partition, ranks: Sequence[Rank]) -> Iterator[Mistake]:
    for part, own in own_cuts(model, cut):
        engines = [replace(r, engine=engine_for(r.engine, part.part.format)) for r in ranks]
        yield from format_of(own.graph).mistakes(part.model, own, engines)


def _metadata(path: Path) -> dict[str, str]:
    """Return what the files' makers have left, the last part's first."""
    files = parts_files(path)[1:]
    kinds = [find_format(file) for file in files]
    known = [kind.metadata(file) for kind, file in zip(kinds, files, strict=True) if kind]
    return {name: text for texts in known for name, text in texts.items()}


FORMAT = Format(
    name="yaml",
    submodels="",
    read=read_parts,
    submodel_files=parts_submodel,
    macs=_macs,
    warnings=quantised_cut_warnings,
    mistakes=_mistakes,
    metadata=_metadata,
    files=parts_files,
    for_engines=for_engines,
)
