"""What was measured of a model on accelerators: the record of ``profile.json``.

All numbers are whole (nanoseconds, bytes, microjoules), so that a file says exactly what was
measured. What could not be measured is absent; it is never zero.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.graph import AnyTensor, Tensor, dtype_bits, values_bytes
from rankslice.framework.reading.records import document_schema, read_document
from rankslice.framework.wording import quoted

FORMAT = "rankslice-profile"
VERSION = 4

OTHER_SIZES = "give the sizes that it was measured with (--shape, --at-most), or measure with these"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """The model that was measured."""

    name: str
    """File name, without folders."""
    sha256: str
    """Of the model file."""
    inputs: tuple[Tensor, ...]
    """What a frame brings; shapes that a file leaves open were given."""
    layers: tuple[str, ...]
    """Names in the order in which spans count them; layers that are copied to their readers, and
    those that no output needs, are left out."""

    def other_sizes(self, inputs: Iterable[AnyTensor]) -> str:
        """Say which of a model's inputs had other sizes when it was measured; empty: none."""
        measured = {tensor.name: tensor for tensor in self.inputs}
        for tensor in inputs:
            known = measured.get(tensor.name, tensor)
            if (known.shape, known.symbols) != (tensor.shape, tensor.symbols):
                sizes = f"{_sizes_text(known)}, not {_sizes_text(tensor)}"
                return f"was measured with input {quoted(tensor.name)} of {sizes}"
        return ""


def _sizes_text(tensor: AnyTensor) -> str:
    shape = list(tensor.shape or ())
    return f"at most {shape}" if tensor.is_open else str(shape)


@dataclass(frozen=True, slots=True)
class SeenTensor:
    """A tensor with open sizes, as frames showed it."""

    name: str
    dtype: str
    """numpy's name of the element type."""
    shapes: tuple[tuple[int, ...], ...]
    """Frame by frame: those at one place in all tensors are of one frame."""

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Size of the values in bytes, frame by frame."""
        return tuple(values_bytes(self.dtype, shape) for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Core:
    """A core of a board, and what sets its clock."""

    number: int
    governor: str | None
    """Linux' policy for the clock, such as ``performance``; absent where the board has none."""
    most_khz: int | None
    """Highest clock that the policy allows, in kHz."""


@dataclass(frozen=True, slots=True)
class MeasuredBoard:
    """The board where a kind of accelerator was measured, as it describes itself."""

    name: str
    """In the platform file."""
    host: str
    """What the board calls itself."""
    machine: str
    """Architecture: ``aarch64``, ``x86_64``."""
    processor: str
    """Name of the board or of its processor; empty if unknown."""
    python: str
    memory_bytes: int
    cores: tuple[Core, ...]
    sensor: str | None
    """What energy was read from; absent: the board has no sensor that is known and readable."""
    idle_mw: int | None
    """Power before anything was computed, by the sensor, in milliwatts."""


@dataclass(frozen=True, slots=True)
class Span:
    """Contiguous layers that ran as one sub-model."""

    first: int
    """Index of the first layer."""
    last: int
    """Index of the last layer, included."""
    samples_ns: tuple[int, ...]
    """Times of single runs, in nanoseconds, in the order of measuring; none if it did not run."""
    moments: tuple[int, ...]
    """How many of them were taken one after the other, at each moment of measuring."""
    memory_bytes: int | None
    """By how much the process's memory grew at most, its slots for inputs and outputs left out."""
    energy_uj: int | None
    """Energy of the whole board during a run, in microjoules, while nothing else computed."""
    problem: str | None
    """Why there are no times."""
    refused: bool
    """Whether the accelerator cannot run these layers."""
    gpu_bytes: int | None = None
    """Memory that it took on NVIDIA's GPUs; absent: it has none, or the driver does not tell."""

    @property
    def moments_s(self) -> tuple[float, ...]:
        """Median of each moment's samples, in seconds."""
        ends = list(itertools.accumulate(self.moments))
        pairs = zip([0, *ends], ends, strict=False)
        return tuple(statistics.median(self.samples_ns[begin:end]) / 1e9 for begin, end in pairs)

    @property
    def seconds(self) -> float | None:
        """Median of what the moments showed, in seconds; ``None`` if nothing was measured."""
        return statistics.median(self.moments_s) if self.moments else None


@dataclass(frozen=True, slots=True)
class ProfiledKind:
    """One kind of accelerator of one kind of board."""

    key: str
    """Mapping key of the accelerator that was measured."""
    keys: tuple[str, ...]
    """Mapping keys of all accelerators of this kind, this one included."""
    accelerator: str
    """``cpu``, ``gpu`` or ``npu``, the latter two with their number if the board has several."""
    threads: int
    engine: str
    engine_version: str
    options: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    allow_fallback: bool
    neighbours: tuple[str, ...]
    """Mapping keys of the board's accelerators that computed meanwhile; none: it was alone."""
    rank_bytes: int
    """Memory of the process with its engine, before it loaded layers."""
    board: MeasuredBoard
    spans: tuple[Span, ...]
    """By first and last layer."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of a model."""

    model: ProfiledModel
    kinds: tuple[ProfiledKind, ...]
    seen: tuple[SeenTensor, ...] = ()
    """Open tensors of the model in frames of which the user gave files, if there are such tensors;
    none: no frames were given, and only the bounds are known."""

    def kind_of(self, key: str) -> ProfiledKind | None:
        return next((kind for kind in self.kinds if key in kind.keys), None)


def profile_to_json(profile: Profile) -> str:
    """Return the text of ``profile.json``: ASCII, a span or a tensor on each line."""
    kinds = ",\n".join(_kind_text(asdict(kind)) for kind in profile.kinds)
    seen = ",\n".join(json.dumps(asdict(tensor)) for tensor in profile.seen)
    return _object_text(
        {
            "format": json.dumps(FORMAT),
            "version": json.dumps(VERSION),
            "model": json.dumps(asdict(profile.model)),
            "kinds": f"[\n{kinds}\n]",
            "seen": f"[\n{seen}\n]",
        }
    )


def _kind_text(kind: dict[str, Any]) -> str:
    spans = ",\n".join(map(json.dumps, kind["spans"]))
    pairs = {name: dict(kind[name]) for name in ("options", "environment")}
    texts = {name: json.dumps(value) for name, value in {**kind, **pairs}.items()}
    return _object_text({**texts, "spans": f"[\n{spans}\n]"}).rstrip("\n")


def _object_text(fields: dict[str, str]) -> str:
    return "{\n" + ",\n".join(f'"{name}": {text}' for name, text in fields.items()) + "\n}\n"


def profile_schema() -> dict[str, Any]:
    return document_schema(Profile, "profile", VERSION)


def profile_from_json(text: str, where: str = "profile.json") -> Profile:
    """Return the profile of a text that :func:`profile_to_json` made, after checking it."""
    profile = read_document(
        Profile, text, where, "profile", VERSION, "rankslice profile", "measure again"
    )
    raise_mistakes(_mistakes(profile, where))
    return profile


def _mistakes(profile: Profile, where: str) -> Iterator[Mistake]:
    layers = profile.model.layers
    for name in _repeated(layers):
        yield Mistake(f"{where}: model.layers", f"two layers are called {quoted(name)}")
    for name in _repeated(tensor.name for tensor in profile.seen):
        yield Mistake(f"{where}: seen", f"two tensors are called {quoted(name)}")
    frames = {len(tensor.shapes) for tensor in profile.seen}
    if len(frames) > 1 or 0 in frames:
        yield Mistake(f"{where}: seen", "not all tensors have a shape for each frame")
    for number, tensor in enumerate(profile.seen):
        sizes = (size for shape in tensor.shapes for size in shape)
        if not dtype_bits(tensor.dtype) or min(sizes, default=0) < 0:
            yield Mistake(f"{where}: seen[{number}]", "its values have no size in bytes")
    for key in _repeated(key for kind in profile.kinds for key in kind.keys):
        yield Mistake(f"{where}: kinds", f"the key {quoted(key)} is there twice")
    for number, kind in enumerate(profile.kinds):
        here = f"{where}: kinds[{number}]"
        if kind.key not in kind.keys:
            yield Mistake(f"{here}.keys", f"{quoted(kind.key)} is not among them")
        for first, last in _repeated((span.first, span.last) for span in kind.spans):
            yield Mistake(f"{here}.spans", f"layers {first} to {last} are there twice")
        for position, span in enumerate(kind.spans):
            if fault := _span_fault(span, len(layers)):
                yield Mistake(f"{here}.spans[{position}]", *fault)


def _repeated(items: Iterable[_T]) -> list[_T]:
    return [item for item, times in Counter(items).items() if times > 1]


def _span_fault(span: Span, layers: int) -> tuple[str, str] | None:
    if not 0 <= span.first <= span.last < layers:
        return f"layers {span.first} to {span.last} are not layers of the model", ""
    if not span.samples_ns and span.problem is None:
        return "it has neither times nor a problem", ""
    if sum(span.moments) != len(span.samples_ns) or min(span.moments, default=1) < 1:
        return "its moments do not have as many samples as there are", "measure again"
    figures = (span.memory_bytes, span.energy_uj, span.gpu_bytes)
    amounts = (*span.samples_ns, *(figure or 0 for figure in figures))
    if min(amounts) < 0 or min(span.samples_ns, default=1) == 0:
        return "a time, memory or energy is below zero, or no time at all", "measure again"
    return None
