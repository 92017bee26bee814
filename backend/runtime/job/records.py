"""``plan.json`` as the runtime needs it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BoundError, JobError, what_is_wrong
from .turns import ALL, Turns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FORMAT = "rankslice-plan"
_VERSION = 4


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
        """Whether a size may change from frame to frame."""
        return any(self.symbols)

    def of_shape(self, shape: Sequence[int]) -> Tensor:
        """Return what this tensor is in a frame in which it has the given shape.

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
        """Return the option of ``build`` that gives the tensor a bound with room for a shape."""
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
    """Name a rank as messages do: ``rank 1 (edge02_gpu on 10.0.0.12)``."""
    return f"rank {rank} ({key} on {host})"


@dataclass(frozen=True, slots=True)
class Rank:
    """Where one rank runs and with what."""

    rank: int
    key: str
    board: str
    host: str
    accelerator: str
    cores: tuple[int, ...]
    engine: str
    options: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that must be set when the rank's process starts."""
    allow_fallback: bool = False
    """Whether layers that the accelerator cannot run may run on the CPU."""
    turns: Turns = ALL
    """The frames that its segments handle."""

    @property
    def name(self) -> str:
        """Name the rank as messages do: ``rank 1 (edge02_gpu on 10.0.0.12)``."""
        return rank_name(self.rank, self.key, self.host)


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """One sub-model file of a rank."""

    rank: int
    index: int
    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    level: int
    levels: int = 1
    """How many of the levels up to ``level`` are its own."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One tensor that goes from one rank to another, in every frame that both handle."""

    number: int
    tensor: str
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, ready to be run."""

    sha256: str
    """Hash of the bytes of plan.json."""
    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tensors: dict[str, Tensor]
    ranks: tuple[Rank, ...]
    segments: tuple[PlacedSegment, ...]
    channels: tuple[Channel, ...]
    source_rank: int
    """Where frames enter."""
    sink_rank: int
    """Where results leave."""
    path_length: int
    window: int
    """Default number of frames inside the pipeline."""
    surge: Job | None = None
    """The same ranks and tensors, with the segments and channels of the route for a surge."""

    @property
    def routes(self) -> tuple[Job, ...]:
        """The job of each way of frames through the ranks, the usual one first."""
        return (self,) if self.surge is None else (replace(self, surge=None), self.surge)

    def segments_of(self, rank: int) -> tuple[PlacedSegment, ...]:
        """Return the segments of one rank, in the order in which a frame passes them."""
        return tuple(segment for segment in self.segments if segment.rank == rank)

    def turns_of_maker(self, rank: int, tensor: str) -> Turns:
        """Return the frames in which a rank has a tensor: all at the source, if it is an input."""
        is_input = any(each.name == tensor for each in self.inputs)
        return ALL if is_input else self.ranks[rank].turns

    def turns_of_reader(self, rank: int, tensor: str) -> Turns:
        """Return the frames in which a rank needs a tensor: all at the sink, if it is an output."""
        is_result = rank == self.sink_rank and any(each.name == tensor for each in self.outputs)
        return ALL if is_result else self.ranks[rank].turns


def load_job(path: Path) -> Job:
    """Read ``plan.json``.

    Raises:
        JobError: the file is missing, or no plan of the version that this runtime reads.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    try:
        record = json.loads(text)
        if record["format"] != _FORMAT:
            raise JobError(f"{path}: format is {record['format']!r}, expected {_FORMAT!r}")
        if record["version"] != _VERSION:
            raise JobError(
                f"{path}: this is a plan of version {record['version']!r}, not {_VERSION}; made by"
                " another version of RankSlice: build again"
            )
        return make_job(record, hashlib.sha256(text).hexdigest())
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise JobError(f"{path}: not a plan ({what_is_wrong(error)}); build again") from None


def make_job(record: dict[str, Any], sha256: str = "") -> Job:
    """Return the job of a plan.

    Raises:
        KeyError, TypeError: it is no plan of the version that this runtime reads.
    """
    tensors = {item["name"]: read_spec(Tensor, item) for item in record["tensors"]}
    model = record["model"]
    steps = {each["name"]: (each["scale"], each["zero_point"]) for each in model["quantised"]}
    job = Job(
        sha256=sha256,
        model=model["name"],
        inputs=tuple(
            replace(tensors[name], quantisation=steps.get(name, ())) for name in model["inputs"]
        ),
        outputs=tuple(tensors[name] for name in model["outputs"]),
        tensors=tensors,
        ranks=tuple(read_spec(Rank, item) for item in record["ranks"]),
        source_rank=record["source"],
        sink_rank=record["sink"],
        window=record["window"],
        **_way(record),
    )
    other = record["surge"]
    if other is None:
        return job
    turns = [read_spec(Turns, item) for item in other["turns"]]
    ranks = (replace(rank, turns=each) for rank, each in zip(job.ranks, turns, strict=True))
    window = other["path_length"] + 1
    return replace(job, surge=replace(job, ranks=tuple(ranks), window=window, **_way(other)))


def _way(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is of a route's own."""
    return {
        "segments": tuple(read_spec(PlacedSegment, item) for item in record["segments"]),
        "channels": tuple(
            Channel(item["number"], item["tensor"], item["source"], item["destination"])
            for item in record["channels"]
        ),
        "path_length": record["path_length"],
    }


def read_spec(kind: Any, item: dict[str, Any]) -> Any:
    """Return a record of some kind, made from an object of plan.json with the same names.

    Raises:
        KeyError, TypeError: a name is missing, or its value is of another type.
    """
    kinds: dict[str, Callable[[Any], Any]] = {
        "tuple": tuple,
        "dict": dict,
        "bool": bool,
        "Turns": partial(read_spec, Turns),
    }
    return kind(
        **{
            each.name: kinds.get(str(each.type).partition("[")[0], _same)(item[each.name])
            for each in fields(kind)
            if each.compare  # the others come from elsewhere in the plan
        }
    )


def _same(value: Any) -> Any:
    return value


def typed_view(spec: Tensor, buffer: NDArray[np.uint8]) -> NDArray[Any]:
    """Return ``buffer`` (uint8, at least ``spec.nbytes`` long) seen as the tensor's values."""
    dtype, shape = spec.storage
    return buffer[: spec.nbytes].view(dtype).reshape(shape)
