"""The files that together compute the unsliced model: one, or one of each of its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rankslice.backend.runtime.engines import Engine, EngineSettings, open_engine
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import NO_FACTS, Facts, Tensor
from rankslice.backend.runtime.sizes import Slot, make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, Source
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.engines import default_engine
from rankslice.framework.graph import Tensor as GraphTensor
from rankslice.frontend.formats import Model, formats_of, submodel_files
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import PartitionSegment


@dataclass(frozen=True, slots=True)
class UnslicedPart:
    file: Path
    format: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    facts: Facts = NO_FACTS
    """Those of a file that was written; of another one only what it calls these tensors."""


class UnslicedModel:
    """The unsliced model in engines: its parts run in their order, on the same slots."""

    def __init__(
        self,
        parts: Sequence[UnslicedPart],
        engines: Mapping[str, str],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        settings: EngineSettings,
        keeps: str | None = None,
    ) -> None:
        """Load the parts.

        Args:
            engines: by format.
            outputs: what is looked at; inputs may be among them.
            keeps: why a run may leave something for the next one; ``None``: as the parts say.
        """
        between = (spec for part in parts for spec in part.outputs)
        slots = {spec.name: make_slot(spec) for spec in (*between, *inputs, *outputs)}

        def of(specs: Sequence[Tensor]) -> list[Slot]:
            return [slots[spec.name] for spec in specs]

        self._inputs, self._outputs = of(inputs), of(outputs)
        self._steps: list[tuple[Engine, list[Slot], list[Slot]]] = []
        for part in parts:
            facts = part.facts if keeps is None else replace(part.facts, keeps=keeps)
            engine = open_engine(engines[part.format], replace(settings, facts=facts))
            engine.load(part.file, *map(facts.in_file, (part.inputs, part.outputs)))
            self._steps.append((engine, of(part.inputs), of(part.outputs)))

    @property
    def outputs(self) -> list[NDArray[Any]]:
        """In the shapes that they have; the next frame overwrites them."""
        return [values_in(slot) for slot in self._outputs]

    def read(self, source: Source, arrival: int) -> None:
        source.read(arrival, self._inputs)

    def run(self) -> None:
        for engine, inputs, outputs in self._steps:
            engine.run([values_in(slot) for slot in inputs], outputs)

    def close(self) -> None:
        for engine, _, _ in self._steps:
            engine.close()


def values_of(
    model: Model, tensors: Sequence[GraphTensor], source: Source, numbers: Iterable[int]
) -> Iterator[list[NDArray[Any]]]:
    """Yield tensors of the unsliced model, frame by frame; a later frame overwrites them.

    Args:
        tensors: of any layers, and model inputs.
        numbers: of frames of the source; its end is theirs, too.

    Raises:
        JobError: a frame cannot be read or computed.
    """
    inputs, outputs = ([t.in_job() for t in side] for side in (model.graph.inputs, tensors))
    made = {spec.name for spec in outputs} - {spec.name for spec in inputs}
    formats = formats_of(model.graph)
    engines = {submodels: default_engine(submodels) for submodels in formats}
    with temporary_folder() as folder:
        parts = [*unsliced_parts(model, made, folder.path, formats[0])] if made else []
        with closing(UnslicedModel(parts, engines, inputs, outputs, EngineSettings())) as whole:
            for number in numbers:
                try:
                    whole.read(source, number)
                    whole.run()
                except EndOfStreamError:
                    return
                except Exception as error:  # engines' exceptions have no common base class
                    raise JobError(f"{source.label(number)}: {error}") from None
                yield whole.outputs


def unsliced_parts(
    model: Model,
    wanted: Collection[str],
    folder: Path,
    suffix: str = "",
    conversion: Conversion = FLOAT32,
    *,
    anew: bool = True,
) -> Iterator[UnslicedPart]:
    """Yield files with all layers of the model, or of each of its parts.

    Args:
        wanted: tensors that they give out, besides those that other parts read.
        folder: where they are written.
        suffix: of the file of a model that does not consist of parts.
        anew: whether to write all of them; else parts that change no layout are taken as they are.
    """
    for number, segment in enumerate(_whole_parts(model, wanted)):
        first = segment.layers[0]
        kind = first.part.format if first.part else suffix
        if anew or any(layer.making for layer in segment.layers):
            file = folder / f"unsliced-{number}.{kind}"
            files = submodel_files(model, segment, name=file.name, conversion=conversion)
            write_submodel(files, file)
            facts = files.facts
        else:
            from rankslice.frontend.formats.parts.reader import PartsModel  # takes its time

            assert isinstance(model, PartsModel)
            part = model.part_of(first)
            file = part.model.path
            facts = Facts(names=tuple((part.whole(name), name) for name in part.own_names))
        inputs, outputs = (
            tuple(tensor.in_job() for tensor in side) for side in (segment.inputs, segment.outputs)
        )
        yield UnslicedPart(file, kind, inputs, outputs, facts)


def _whole_parts(model: Model, wanted: Collection[str]) -> Iterator[PartitionSegment]:
    """Yield all layers of each part, with what it gives to others, and what is wanted of it."""
    graph = model.graph
    part_of = {tensor.name: layer.part for layer in graph.layers for tensor in layer.outputs}
    reads = [(tensor, layer.part) for layer in graph.layers for tensor in layer.inputs]
    given = {t.name for t, part in reads if part_of.get(t.name, part) != part} | {*wanted}
    for part in dict.fromkeys(layer.part for layer in graph.layers):
        layers = tuple(layer for layer in graph.layers if layer.part == part)
        made = (tensor for layer in layers for tensor in layer.outputs)
        read = {t.name: t for t, reader in reads if reader == part if part_of.get(t.name) != part}
        inputs = tuple(read.values()) if part else graph.inputs
        yield PartitionSegment(layers, inputs, tuple(t for t in made if t.name in given))
