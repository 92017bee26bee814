"""What the product knows of a format of model files, and of conversions to another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

from rankslice.backend.runtime.job import Rank
from rankslice.framework.errors import Mistake
from rankslice.framework.graph import Graph, Layer, Tensor
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.pieces import SubModelFiles
from rankslice.frontend.partition.partition import Partition, PartitionSegment

if TYPE_CHECKING:  # it takes its time, and only layers that are split need it
    from rankslice.frontend.rewriting.regions import FormOf

KINDS = ("float32", "float16", "dynamic", "int8")
"""How weights and activations are stored: both in float32; weights in float16; weights in int8,
activations in float32; both in int8. Inputs and outputs are float32 always."""

Frames: TypeAlias = Callable[[], Iterator[Sequence[NDArray[Any]]]]
"""Gives frames, again and again: an array per model input."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How sub-models are converted."""

    kind: str = "float32"
    frames: Frames | None = None
    """For ``int8``: frames like those that will come. Each sub-model is calibrated for what the
    unsliced model in float32 makes of them at its inputs, so both ends of a channel agree."""


FLOAT32 = Conversion()


class Model(Protocol):
    """A model file that was read. Formats add what their sub-models inherit."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def graph(self) -> Graph:
        """Its layers and tensors."""


_M = TypeVar("_M", bound=Model)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A model and the ranks of its layers, as a format's conversion needs them."""

    graph: Graph
    rank_of: Mapping[str, int]
    warnings: tuple[str, ...] = ()


Versions: TypeAlias = tuple[int | None, tuple[tuple[str, int], ...]]
"""Versions that a model file names: of ONNX's own format, and of operator sets by domain."""


@dataclass(frozen=True, slots=True)
class Format(Generic[_M]):
    """A format of model files: how they are read, written and judged.

    A new format has a folder with this record, and a row in
    :data:`rankslice.frontend.formats.FORMATS`. What follows ``macs`` may be left out.
    """

    name: str
    """As :attr:`rankslice.framework.graph.Graph.format` has it."""
    submodels: str
    """Format of its sub-models, and the suffix of their files. Engines say which of these they
    run. Empty: its parts have formats of their own."""
    read: Callable[[Path, GivenSizes], _M]
    """Reads a file: see :func:`rankslice.frontend.formats.read_model`."""
    submodel_files: Callable[[_M, PartitionSegment, str, Conversion], SubModelFiles]
    """Gives what to write for a part: see :func:`rankslice.frontend.formats.submodel_files`."""
    macs: Callable[[Layer], int | None]
    """Counts the multiply-accumulate operations of a layer for one frame; ``None``: not known."""
    conversions: tuple[str, ...] = ()
    """Kinds of :data:`rankslice.frontend.formats.model_format.KINDS` that sub-models can have;
    empty if they are copies of parts of the file."""
    arrange: Callable[[Graph, Mapping[str, int]], Arrangement] = Arrangement
    """Puts layers that converting merges on the same rank."""
    mistakes: Callable[[_M, Partition, Sequence[Rank]], Iterable[Mistake]] = (
        lambda model, cut, ranks: ()
    )
    """Finds layers that the engines of their ranks cannot run."""
    warnings: Callable[[Partition], Iterable[str]] = lambda cut: ()
    """Says what works but would be better with other cuts."""
    versions: Callable[[_M], Versions] = lambda model: (None, ())
    """Says which versions the file names."""
    metadata: Callable[[Path], Mapping[str, str]] = lambda path: {}
    """Reads what the file's maker has left in it."""
    files: Callable[[Path], Sequence[Path]] = lambda path: (path,)
    """Names all files whose content is the model's, external weights aside."""
    for_engines: Callable[[_M, Mapping[str, Collection[str]]], _M] = lambda model, engines: model
    """Takes those files of parts that their engines run, by the part's name."""
    shows_bounds: bool = False
    """Whether a run of the whole model can show the sizes of any tensor."""
    forms: Callable[[_M], FormOf] = lambda model: lambda layer: None
    """Says what layers need for a part of their result."""
    with_made_layers: Callable[[_M, Graph], _M] | None = None
    """Gives a model another graph, and makes the records of its made layers; ``None``: its layers
    cannot be made."""
    wire_fault: Callable[[_M, str], str] = lambda model, dtype: ""
    """Says why tensors of a model cannot be converted to a type and back; empty: they can."""
    channel_axis: Callable[[_M, Tensor], int | None] = lambda model, tensor: None
    """Names the axis along which integers may have scales of their own; ``None``: none."""
    channels_last: bool = False
    """Whether an image is [batch, rows, columns, channels], and not [batch, channels, rows,
    columns]."""

    @property
    def is_converted(self) -> bool:
        return self.submodels not in ("", self.name)
