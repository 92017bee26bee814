"""What a job is: the records of which a generated driver consists."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from ..errors import BoundError, JobError
from .strict import PAIRS, Only, plain, vars_of
from .turns import ALL, Turns
from .wording import joined

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANDOM = "it draws random numbers"
VARIABLES = "it keeps variables"

Compression: TypeAlias = Literal["none", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
"""How messages of a channel are compressed, if at all."""

COMPRESSED = Only(COMPRESSIONS.__contains__, joined(COMPRESSIONS, "or"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a sub-model before it is loaded."""

    keeps: str = ""
    """Why a run may leave something for the next one, as :data:`VARIABLES`; empty: it does not."""
    divides: bool = False
    """Whether it may divide integers by zero where its inputs are zeros."""
    control_flow: str = ""
    """Of an ONNX sub-model, an operator of control flow that it has: ``Loop``."""
    operators: int = 0
    """How many it has, if its engine wants to know."""
    names: PAIRS = ()
    """Tensors of the job that its file calls otherwise, each with the name that it has there."""

    def in_file(self, specs: Iterable[Tensor]) -> list[Tensor]:
        """Return tensors of the job with the names that they have in the sub-model's file."""
        names = dict(self.names)
        return [replace(spec, name=names.get(spec.name, spec.name)) for spec in specs]


NO_FACTS = Facts()


@dataclass(frozen=True, slots=True)
class Tensor:
    """Name, type and largest shape of a tensor that lives in slots."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    symbols: tuple[str, ...] = ()
    """By axis, the name of a size that is open, ``?`` if it has none, or empty if it is fixed;
    ``()``: all are fixed. Of the model inputs, sizes of one name are equal in a frame."""
    quantisation: tuple[float, ...] = field(default=(), compare=False)
    """Of a quantised model input: scale and zero point. Its integers stand for
    ``scale * (integer - zero point)``."""

    @property
    def is_open(self) -> bool:
        return any(self.symbols)

    def of_shape(self, shape: Sequence[int]) -> Tensor:
        """Narrow this tensor to the shape that it has in a frame.

        Raises:
            BoundError: the shape is beyond the bound.
            JobError: it cannot have that shape for another reason.
        """
        shape = tuple(map(int, shape))
        if len(shape) != len(self.shape):
            raise JobError(f"{self._of(shape)} has {len(shape)} dimensions, not {len(self.shape)}")
        symbols = self.symbols or ("",) * len(shape)
        for axis, (size, largest, symbol) in enumerate(
            zip(shape, self.shape, symbols, strict=True)
        ):
            if not symbol and size != largest:
                raise JobError(f"{self._of(shape)}: dimension {axis} is {size}, expected {largest}")
            if size < 0:
                raise JobError(f"{self._of(shape)}: dimension {axis} is {size}")
            if size > largest:
                raise BoundError(
                    f"{self._of(shape)} is beyond its bound {list(self.shape)}: build with larger"
                    f" ones ({self.at_most(shape)})"
                )
        return Tensor(self.name, self.dtype, shape)

    def at_most(self, shape: Sequence[int]) -> str:
        """Write the option of ``build`` that gives the tensor a bound with room for a shape."""
        name = self.name if self.name.isprintable() else repr(self.name)
        return f"--at-most {name}={','.join(map(str, map(max, shape, self.shape)))}"

    def _of(self, shape: Sequence[int]) -> str:
        return f"tensor {self.name!r} of shape {list(shape)}"

    @property
    def storage(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The numpy type and shape in which the values are held.

        ``bfloat16`` is held as ``uint16``, 8-bit floats as ``uint8``; 4-bit types are packed two
        to a byte, so their storage is flat.

        Raises:
            JobError: the type has no storage of a fixed size.
        """
        import numpy as np

        if self.dtype.startswith(("float4", "int4", "uint4")):
            return np.dtype(np.uint8), ((math.prod(self.shape) + 1) // 2,)
        if self.dtype.startswith("float8"):
            return np.dtype(np.uint8), self.shape
        if self.dtype == "bfloat16":
            return np.dtype(np.uint16), self.shape
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "biufc":
            raise JobError(
                f"tensor {self.name!r}: values of type {self.dtype!r} have no fixed size"
            )
        return dtype, self.shape

    @property
    def nbytes(self) -> int:
        """Largest size of the values in bytes."""
        dtype, shape = self.storage
        return dtype.itemsize * math.prod(shape)


def rank_name(rank: int, key: str, host: str) -> str:
    return f"rank {rank} ({key} on {host})"


@dataclass(frozen=True, slots=True)
class Receive:
    """A tensor that comes from another rank, in each frame that both handle."""

    tensor: str
    source: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A convex piece of a rank's layers: with its inputs there, it runs without waiting."""

    file: str
    """Path of the sub-model file inside the build folder."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    facts: Facts = NO_FACTS
    engine: str = ""
    """That runs it on the rank's cores, without the rank's options; empty: the rank's own."""


@dataclass(frozen=True, slots=True)
class Send:
    """A tensor that goes to another rank, in each frame that both handle."""

    tensor: str
    to: int
    compress: Annotated[str, COMPRESSED] = "none"
    """How its messages are compressed, if it goes by messages."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a rank does with each frame that it handles on a second route: in a surge, say."""

    turns: Turns = ALL
    receives: tuple[Receive, ...] = ()
    runs: tuple[Segment, ...] = ()
    sends: tuple[Send, ...] = ()


@dataclass(frozen=True, slots=True)
class Rank:
    """Where one rank runs, with what, and what it does with each frame that it handles."""

    rank: int
    key: str
    """Of the mapping."""
    board: str
    host: str
    """Address that ssh and mpirun use."""
    accelerator: str
    """``cpu``, ``gpu`` or ``npu``, the latter two with their number if the board has several."""
    cores: tuple[int, ...]
    """Cores of the board (the kernel's numbers) that compute, or that drive the GPU or NPU."""
    engine: str
    """Inference engine, by the name of its module in ``backend/runtime/engines``."""
    options: tuple[tuple[str, str], ...] = ()
    """Of the engine (delegate library, provider options)."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that must be set when the rank's process starts."""
    allow_fallback: bool = False
    shared: bool = False
    """Whether another rank has one of these cores too."""
    turns: Turns = ALL
    """The frames that its segments handle: not all if other ranks have the same ones."""
    receives: tuple[Receive, ...] = ()
    runs: tuple[Segment, ...] = ()
    """In the order in which a frame passes them."""
    sends: tuple[Send, ...] = ()
    surge: Route | None = None
    """What it does instead while more frames come than the usual route can handle."""

    @property
    def all_runs(self) -> tuple[Segment, ...]:
        """Its segments on both routes."""
        return (*self.runs, *(self.surge.runs if self.surge else ()))

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines of its segments on both routes, its own first."""
        others = (segment.engine or self.engine for segment in self.all_runs)
        return tuple(dict.fromkeys((self.engine, *others)))

    @property
    def name(self) -> str:
        return rank_name(self.rank, self.key, self.host)


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    rank: int
    index: int
    """Number within the rank, from 0, in the order in which a frame passes them; those of a second
    route follow."""
    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    level: int
    """Length of the longest path from the source to this segment, itself included, in segments
    and hops between ranks; a segment of ranks that take turns counts :attr:`levels`."""
    levels: int = 1
    """How many steps of the pipeline it may take for a frame: more than one if its rank does not
    handle every frame."""
    facts: Facts = NO_FACTS
    engine: str = ""
    """If it is not the rank's."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One tensor that goes from one rank to another, in every frame that both handle."""

    number: int
    """Also the MPI tag; from 1, since tag 0 is the completion credit's."""
    tensor: str
    source: int
    destination: int
    compress: str = "none"
    """How its messages are compressed, if they are."""


@dataclass(frozen=True)
class Job:
    """What runs where, and who sends what to whom.

    Numbers of channels and levels of segments follow from it; they are not written down.
    """

    model: str
    window: int
    """Frames inside the pipeline at most, unless a run is given another number."""
    source: int
    sink: int
    inputs: tuple[Tensor, ...]
    between: tuple[Tensor, ...]
    """What else segments take in or give out."""
    outputs: tuple[Tensor, ...]
    ranks: tuple[Rank, ...]
    surge_window: int | None = None
    """Frames inside at most on the second route, if there is one."""
    usual: Job | None = field(default=None, init=False, repr=False, compare=False)
    """Of a second route, the job of the usual one: its numbers come first."""

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        tensors = {tensor.name: tensor for tensor in (*self.inputs, *self.between, *self.outputs)}
        # Of an output that is an input, too, the input knows more.
        return tensors | {tensor.name: tensor for tensor in self.inputs}

    @cached_property
    def segments(self) -> tuple[PlacedSegment, ...]:
        return self._places[0]

    @property
    def path_length(self) -> int:
        return self._places[1]

    @cached_property
    def _places(self) -> tuple[tuple[PlacedSegment, ...], int]:
        """Segments with their levels, and the longest path from source to sink."""
        levels = _Levels(self)
        before = (
            [len(rank.runs) for rank in self.usual.ranks] if self.usual else [0] * len(self.ranks)
        )
        segments = []
        for (number, index), level in levels.in_order():
            rank = self.ranks[number]
            segment = rank.runs[index]
            segments.append(
                PlacedSegment(
                    number,
                    before[number] + index,
                    segment.file,
                    segment.inputs,
                    segment.outputs,
                    level,
                    rank.turns.levels,
                    segment.facts,
                    segment.engine,
                )
            )
        return tuple(segments), levels.at_sink()

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        sends: dict[tuple[int, str], list[Send]] = defaultdict(list)
        for rank in self.ranks:
            for send in rank.sends:
                sends[rank.rank, send.tensor].append(send)
        made = [(self.source, tensor.name) for tensor in self.inputs]
        made += [(segment.rank, name) for segment in self.segments for name in segment.outputs]
        ends = [(origin[0], send) for origin in made for send in sends[origin]]
        first = 1 + (len(self.usual.channels) if self.usual else 0)
        return tuple(
            Channel(number, send.tensor, source, send.to, send.compress)
            for number, (source, send) in enumerate(ends, first)
        )

    @cached_property
    def sha256(self) -> str:
        """Digest of all that the driver says, whatever its line breaks and comments are."""
        text = json.dumps(plain(Job, self), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def surge(self) -> Job | None:
        if self.surge_window is None:
            return None
        ways = [rank.surge or Route() for rank in self.ranks]
        ranks = (
            replace(rank, **vars_of(way), surge=None)
            for rank, way in zip(self.ranks, ways, strict=True)
        )
        job = replace(self, ranks=tuple(ranks), window=self.surge_window, surge_window=None)
        object.__setattr__(job, "usual", self)
        return job

    @cached_property
    def routes(self) -> tuple[Job, ...]:
        """The job of each way of frames through the ranks, the usual one first."""
        if self.surge is None:
            return (self,)
        ranks = tuple(replace(rank, surge=None) for rank in self.ranks)
        return replace(self, ranks=ranks, surge_window=None), self.surge

    def segments_of(self, rank: int) -> tuple[PlacedSegment, ...]:
        return tuple(segment for segment in self.segments if segment.rank == rank)

    def turns_of_maker(self, rank: int, tensor: str) -> Turns:
        """The frames in which a rank has a tensor: all at the source, if it is an input."""
        is_input = any(spec.name == tensor for spec in self.inputs)
        return ALL if is_input else self.ranks[rank].turns

    def turns_of_reader(self, rank: int, tensor: str) -> Turns:
        """The frames in which a rank needs a tensor: all at the sink, if it is an output."""
        is_result = rank == self.sink and any(spec.name == tensor for spec in self.outputs)
        return ALL if is_result else self.ranks[rank].turns


def typed_view(spec: Tensor, buffer: NDArray[np.uint8]) -> NDArray[Any]:
    """View a buffer (uint8, at least ``spec.nbytes`` long) as the tensor's values."""
    dtype, shape = spec.storage
    return buffer[: spec.nbytes].view(dtype).reshape(shape)


_Origin: TypeAlias = tuple[int, int]
"""A segment: its rank, and its position there."""


class _Levels:
    """The level of each segment.

    Raises:
        JobError: segments wait for each other.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._of: dict[_Origin, int] = {}
        self._makers: dict[str, list[_Origin]] = defaultdict(list)
        segments = {(r.rank, index): s for r in job.ranks for index, s in enumerate(r.runs)}
        for origin, segment in segments.items():
            for name in segment.outputs:
                self._makers[name].append(origin)
        self._inputs = {tensor.name for tensor in job.inputs}
        before = {
            (rank, index): {
                *self._made(job.ranks[rank].turns, segment.inputs),
                *([(rank, index - 1)] if index else []),
            }
            for (rank, index), segment in segments.items()
        }
        try:
            for origin in TopologicalSorter(before).static_order():
                turns = job.ranks[origin[0]].turns
                level = self._before(origin[0], turns, segments[origin].inputs)
                self._of[origin] = level + turns.levels
        except CycleError:
            raise JobError("segments wait for each other") from None

    def _made(self, turns: Turns, names: Iterable[str]) -> Iterator[_Origin]:
        for name in names:
            for rank, index in self._makers.get(name, ()):
                if turns.shared_with(self._job.ranks[rank].turns):
                    yield rank, index

    def _before(self, rank: int, turns: Turns, names: Iterable[str]) -> int:
        """Highest level of what comes in; a hop between ranks counts."""
        names = [*names]
        hop = not self._inputs.isdisjoint(names) and rank != self._job.source
        levels = (self._of[origin] + (origin[0] != rank) for origin in self._made(turns, names))
        return max(levels, default=0) if not hop else max([1, *levels])

    def in_order(self) -> list[tuple[_Origin, int]]:
        """List segments and their levels, each after those before it: these are lower."""
        return sorted(self._of.items(), key=lambda item: (item[1], item[0]))

    def at_sink(self) -> int:
        return self._before(self._job.sink, ALL, (tensor.name for tensor in self._job.outputs))
