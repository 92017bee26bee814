"""All that the front end decided, as one record and one file, ``plan.json``.

The runtime on the boards reads the file, and only that; so everything a rank needs to know
stands in it. The order of every list is fixed, so equal plans are equal bytes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Tensor
from rankslice.framework.mapping import Placement
from rankslice.framework.reading.records import document_schema, read_document, read_record
from rankslice.framework.wording import described, quoted

FORMAT = "rankslice-plan"
VERSION = 2

_SUBMODEL = re.compile(r"submodels/[A-Za-z0-9_,@%][A-Za-z0-9_,@%.-]*")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that was sliced."""

    name: str
    sha256: str
    format: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """A convex piece of a rank's layers: with its inputs there, it runs without waiting."""

    rank: int
    index: int
    """Number within the rank, from 0, in the order in which a frame passes them."""
    file: str
    """Path of the sub-model file inside the build folder."""
    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    level: int
    """Length of the longest path from the source to this segment, itself included, in segments
    and hops between ranks."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One tensor that one rank sends to another, every frame."""

    number: int
    """Also the MPI tag; from 1, since tag 0 is the completion credit's."""
    tensor: str
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run where, and who sends what to whom."""

    model: ModelInfo
    ranks: tuple[Placement, ...]
    tensors: tuple[Tensor, ...]
    """Those that segments take in or give out, by first use: type and largest shape are always
    known."""
    segments: tuple[Segment, ...]
    """In a topological order of the segment graph."""
    channels: tuple[Channel, ...]
    source: int
    """Rank where frames enter."""
    sink: int
    """Rank where results come out."""
    path_length: int
    """Longest path from source to sink, in segments and hops."""
    minimal: bool
    """Whether the number of segments is proven to be the smallest possible."""

    @property
    def window(self) -> int:
        """Default number of frames inside the pipeline: the longest path plus one."""
        return self.path_length + 1

    def of_rank(self, rank: int) -> tuple[Segment, ...]:
        """Return the segments of one rank, by index."""
        return tuple(segment for segment in self.segments if segment.rank == rank)


def plan_to_json(plan: Plan) -> str:
    """Return the text of ``plan.json``: ASCII, indented, the same bytes for the same plan."""
    return json.dumps(plan_record(plan), indent=1, ensure_ascii=True) + "\n"


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return what ``plan.json`` holds."""
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(plan)}
    for rank in record["ranks"]:
        rank["options"] = dict(rank["options"])
        rank["environment"] = dict(rank["environment"])
    record["window"] = plan.window
    return record


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``plan.json``, for other tools that read it."""
    schema = document_schema(Plan, "plan", VERSION, window={"type": "integer", "minimum": 2})
    schema["$defs"]["Segment"]["properties"]["file"]["pattern"] = f"^{_SUBMODEL.pattern}$"
    return schema


def plan_from_json(text: str, where: str = "plan.json") -> Plan:
    """Return the plan of a text that :func:`plan_to_json` made, after checking it.

    What comes back is sound: ranks, tensors and files that are named exist, files lie in
    ``submodels``, segments are in a topological order, and channels bring each rank what it
    needs.

    Args:
        text: The text of the file.
        where: Name of the file, for messages.

    Raises:
        RankSliceError: It is not JSON, another format or version, has a field of another type,
            or contradicts itself.
    """
    record, _ = read_document(text, where, "plan", (VERSION,), "rankslice build", "build it again")
    window = record.pop("window", None)
    plan = read_record(Plan, record, where)
    if type(window) is not int or window != plan.window:
        found = f"found {described(window)}"
        raise RankSliceError(Mistake(f"{where}: window", found, f"expected {plan.window}"))
    raise_mistakes(_name_mistakes(plan, where))
    raise_mistakes(_flow_mistakes(plan, where))
    return plan


def _name_mistakes(plan: Plan, where: str) -> Iterator[Mistake]:
    """Yield what names something that is not there, or that is there twice."""
    ranks = range(len(plan.ranks))
    tensors = {tensor.name for tensor in plan.tensors}
    used_ranks = [(f"segments[{n}].rank", segment.rank) for n, segment in enumerate(plan.segments)]
    used_tensors = [
        (f"segments[{n}].{side}", name)
        for n, segment in enumerate(plan.segments)
        for side, names in (("inputs", segment.inputs), ("outputs", segment.outputs))
        for name in names
    ]
    for number, channel in enumerate(plan.channels):
        used_ranks.append((f"channels[{number}].source", channel.source))
        used_ranks.append((f"channels[{number}].destination", channel.destination))
        used_tensors.append((f"channels[{number}].tensor", channel.tensor))
        if channel.number != number + 1:
            found = f"found {channel.number}"
            yield Mistake(f"{where}: channels[{number}].number", found, f"expected {number + 1}")
    for field, rank in (("source", plan.source), ("sink", plan.sink), *used_ranks):
        if rank not in ranks:
            yield Mistake(f"{where}: {field}", f"there is no rank {rank}")
    for field, tensor in (
        *(("model.inputs", name) for name in plan.model.inputs),
        *(("model.outputs", name) for name in plan.model.outputs),
        *used_tensors,
    ):
        if tensor not in tensors:
            yield Mistake(f"{where}: {field}", f"there is no tensor {quoted(tensor)}")
    yield from _record_mistakes(plan, where)


def _record_mistakes(plan: Plan, where: str) -> Iterator[Mistake]:
    """Yield ranks, tensors and segments that are wrong in themselves."""
    if plan.path_length < 1:
        yield Mistake(f"{where}: path_length", f"found {plan.path_length}")
    for number, rank in enumerate(plan.ranks):
        if rank.rank != number:
            yield Mistake(f"{where}: ranks[{number}].rank", f"found {rank.rank}")
    if len({rank.key for rank in plan.ranks}) < len(plan.ranks):
        yield Mistake(f"{where}: ranks", "two ranks have the same key")
    for number, tensor in enumerate(plan.tensors):
        if not tensor.nbytes or min(tensor.shape or (), default=1) < 0:
            yield Mistake(f"{where}: tensors[{number}]", "it has no type and shape of a fixed size")
        if tensor.symbols and len(tensor.symbols) != len(tensor.shape or ()):
            here, found = f"{where}: tensors[{number}].symbols", f"found {len(tensor.symbols)}"
            yield Mistake(here, found, "expected one for each axis, or none")
        elif not all(map(str.isprintable, tensor.symbols)):
            here = f"{where}: tensors[{number}].symbols"
            yield Mistake(here, "a name has characters that cannot be printed")
    if len({tensor.name for tensor in plan.tensors}) < len(plan.tensors):
        yield Mistake(f"{where}: tensors", "two tensors have the same name")
    seen: Counter[int] = Counter()
    for number, segment in enumerate(plan.segments):
        if not _SUBMODEL.fullmatch(segment.file):
            found = f"{quoted(segment.file)} is not the name of a sub-model's file"
            yield Mistake(f"{where}: segments[{number}].file", found)
        if segment.index != seen[segment.rank]:
            yield Mistake(f"{where}: segments[{number}].index", f"found {segment.index}")
        seen[segment.rank] += 1
        if segment.level < 1:
            yield Mistake(f"{where}: segments[{number}].level", f"found {segment.level}")
    if len({segment.file for segment in plan.segments}) < len(plan.segments):
        yield Mistake(f"{where}: segments", "two segments have the same file")


def _flow_mistakes(plan: Plan, where: str) -> Iterator[Mistake]:
    """Yield tensors that are made twice, read before they are made, or do not arrive."""
    origin = dict.fromkeys(plan.model.inputs, plan.source)
    arriving = {(channel.tensor, channel.destination) for channel in plan.channels}
    if len(arriving) < len(plan.channels):
        yield Mistake(f"{where}: channels", "two of them bring the same tensor to the same rank")
    for number, segment in enumerate(plan.segments):
        here = f"{where}: segments[{number}]"
        for name in segment.inputs:
            if name not in origin:
                yield Mistake(f"{here}.inputs", f"nothing before it makes {quoted(name)}")
            elif origin[name] != segment.rank and (name, segment.rank) not in arriving:
                yield Mistake(f"{here}.inputs", f"no channel brings {quoted(name)}")
        for name in segment.outputs:
            if name in origin:
                yield Mistake(f"{here}.outputs", f"{quoted(name)} is there already")
            origin[name] = segment.rank
    for name in plan.model.outputs:
        if name not in origin or (origin[name] != plan.sink and (name, plan.sink) not in arriving):
            yield Mistake(f"{where}: model.outputs", f"{quoted(name)} does not reach the sink")
    for number, channel in enumerate(plan.channels):
        if origin.get(channel.tensor) != channel.source or channel.source == channel.destination:
            found = f"it does not lead {quoted(channel.tensor)} away from the rank that makes it"
            yield Mistake(f"{where}: channels[{number}]", found)
