"""All that the front end decided, as one record and one file, ``plan.json``.

The runtime on the boards reads the file, and only that; so everything a rank needs to know
stands in it. The order of every list is fixed, so equal plans are equal bytes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from rankslice.backend.runtime.job import ALL, MOST_TURNS, Turns
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import QuantisedInput, Tensor
from rankslice.framework.mapping import Placement
from rankslice.framework.reading.records import document_schema, read_document, read_record
from rankslice.framework.wording import described, quoted

FORMAT = "rankslice-plan"
VERSION = 4

_SUBMODEL = re.compile(r"submodels/[A-Za-z0-9_,@%][A-Za-z0-9_,@%.-]*")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that was sliced."""

    name: str
    sha256: str
    format: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    quantised: tuple[QuantisedInput, ...] = ()
    """Those of the inputs that are."""


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
    and hops between ranks; a segment of ranks that take turns counts :attr:`levels`."""
    levels: int = 1
    """How many steps of the pipeline it may take for a frame: more than one if its rank does not
    handle every frame."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One tensor that one rank sends to another, in every frame that both of them handle."""

    number: int
    """Also the MPI tag; from 1, since tag 0 is the completion credit's."""
    tensor: str
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Route:
    """A second way of frames through the ranks: for a surge, say."""

    turns: tuple[Turns, ...]
    """By rank: which frames of the route its segments handle."""
    segments: tuple[Segment, ...]
    """In a topological order; their indices in a rank follow those of the plan's own segments."""
    channels: tuple[Channel, ...]
    """Their numbers follow those of the plan's own channels."""
    path_length: int
    minimal: bool


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
    """Longest path from source to sink, in levels."""
    minimal: bool
    """Whether the number of segments is proven to be the smallest possible."""
    surge: Route | None = None
    """The way that frames take while more come than the ranks can handle on the usual one."""

    @property
    def routes(self) -> tuple[Plan, ...]:
        """The plan of each way of frames through the ranks, the usual one first."""
        if self.surge is None:
            return (self,)
        surge = replace(
            self,
            ranks=tuple(
                replace(rank, turns=turns)
                for rank, turns in zip(self.ranks, self.surge.turns, strict=True)
            ),
            segments=self.surge.segments,
            channels=self.surge.channels,
            path_length=self.surge.path_length,
            minimal=self.surge.minimal,
            surge=None,
        )
        return replace(self, surge=None), surge

    @property
    def window(self) -> int:
        """Default number of frames inside the pipeline: the longest path plus one."""
        return self.path_length + 1

    def of_rank(self, rank: int) -> tuple[Segment, ...]:
        """Return the segments of one rank, by index."""
        return tuple(segment for segment in self.segments if segment.rank == rank)

    def turns_of_reader(self, rank: int, tensor: str) -> Turns:
        """Return the frames in which a rank needs a tensor: all at the sink, if it is an output."""
        is_result = rank == self.sink and tensor in self.model.outputs
        return ALL if is_result else self.ranks[rank].turns

    def turns_of_maker(self, rank: int, tensor: str) -> Turns:
        """Return the frames in which a rank has a tensor: all at the source, if it is an input."""
        return ALL if tensor in self.model.inputs else self.ranks[rank].turns


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
    if plan.surge is not None:
        raise_mistakes(_surge_turns_mistakes(plan.surge, len(plan.ranks), f"{where}: surge.turns"))
    routes = plan.routes
    heres = (where, f"{where}: surge")
    for route, here, before in zip(routes, heres, (_FROM_ZERO, _Counts.of(plan)), strict=False):
        raise_mistakes(_name_mistakes(route, here, before))
    for route, here in zip(routes, heres, strict=False):
        raise_mistakes(_flow_mistakes(route, here))
    files = [segment.file for route in routes for segment in route.segments]
    if len({*files}) < len(files):
        raise RankSliceError(Mistake(f"{where}: segments", "two segments have the same file"))
    return plan


@dataclass(frozen=True, slots=True)
class _Counts:
    """What routes before another one have."""

    channels: int
    segments: Mapping[int, int]
    """By rank."""

    @staticmethod
    def of(plan: Plan) -> _Counts:
        return _Counts(len(plan.channels), Counter(each.rank for each in plan.segments))


_FROM_ZERO = _Counts(0, {})


def _name_mistakes(plan: Plan, where: str, before: _Counts) -> Iterator[Mistake]:
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
        expected = before.channels + number + 1
        if channel.number != expected:
            found = f"found {channel.number}"
            yield Mistake(f"{where}: channels[{number}].number", found, f"expected {expected}")
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
    yield from _record_mistakes(plan, where, before)


def _record_mistakes(plan: Plan, where: str, before: _Counts) -> Iterator[Mistake]:
    """Yield ranks, tensors and segments that are wrong in themselves."""
    if plan.path_length < 1:
        yield Mistake(f"{where}: path_length", f"found {plan.path_length}")
    for number, rank in enumerate(plan.ranks):
        if rank.rank != number:
            yield Mistake(f"{where}: ranks[{number}].rank", f"found {rank.rank}")
        yield from _turns_mistakes(rank.turns, f"{where}: ranks[{number}].turns")
    if len({rank.key for rank in plan.ranks}) < len(plan.ranks):
        yield Mistake(f"{where}: ranks", "two ranks have the same key")
    for number, tensor in enumerate(plan.tensors):
        size = tensor.nbytes
        if size is None or not (size or tensor.is_open) or min(tensor.shape or (), default=1) < 0:
            yield Mistake(f"{where}: tensors[{number}]", "it has no type and shape of a fixed size")
        if tensor.symbols and len(tensor.symbols) != len(tensor.shape or ()):
            here, found = f"{where}: tensors[{number}].symbols", f"found {len(tensor.symbols)}"
            yield Mistake(here, found, "expected one for each axis, or none")
        elif not all(map(str.isprintable, tensor.symbols)):
            here = f"{where}: tensors[{number}].symbols"
            yield Mistake(here, "a name has characters that cannot be printed")
    if len({tensor.name for tensor in plan.tensors}) < len(plan.tensors):
        yield Mistake(f"{where}: tensors", "two tensors have the same name")
    seen = Counter(before.segments)
    for number, segment in enumerate(plan.segments):
        if not _SUBMODEL.fullmatch(segment.file):
            found = f"{quoted(segment.file)} is not the name of a sub-model's file"
            yield Mistake(f"{where}: segments[{number}].file", found)
        if segment.index != seen[segment.rank]:
            yield Mistake(f"{where}: segments[{number}].index", f"found {segment.index}")
        seen[segment.rank] += 1
        if segment.level < 1:
            yield Mistake(f"{where}: segments[{number}].level", f"found {segment.level}")
        if not 1 <= segment.levels <= segment.level:
            yield Mistake(f"{where}: segments[{number}].levels", f"found {segment.levels}")


def _surge_turns_mistakes(surge: Route, ranks: int, here: str) -> Iterator[Mistake]:
    """Yield what is wrong with the frames that ranks handle on the route for a surge."""
    if len(surge.turns) != ranks:
        yield Mistake(here, f"found {len(surge.turns)}", f"expected {ranks}, one for each rank")
    for rank, turns in enumerate(surge.turns):
        yield from _turns_mistakes(turns, f"{here}[{rank}]")


def _turns_mistakes(turns: Turns, here: str) -> Iterator[Mistake]:
    """Yield what is wrong with the frames that a rank handles."""
    if not 1 <= turns.period <= MOST_TURNS:
        yield Mistake(f"{here}.period", f"found {turns.period}", f"expected 1 to {MOST_TURNS}")
    elif not turns.positions or list(turns.positions) != sorted(
        set(turns.positions) & set(range(turns.period))
    ):
        found = f"found {list(turns.positions)}"
        expected = f"expected numbers from 0 to {turns.period - 1}, ascending"
        yield Mistake(f"{here}.positions", found, expected)


def _flow_mistakes(plan: Plan, where: str) -> Iterator[Mistake]:
    """Yield tensors that are made twice, read before they are made, or do not arrive."""
    makers: dict[str, list[int]] = {name: [plan.source] for name in plan.model.inputs}
    arriving = {(c.tensor, c.source, c.destination) for c in plan.channels}
    if len(arriving) < len(plan.channels):
        found = "two of them carry the same tensor between the same ranks"
        yield Mistake(f"{where}: channels", found)

    def comes(name: str, rank: int) -> Fraction:
        needed = plan.turns_of_reader(rank, name)
        there = [m for m in makers[name] if m == rank or (name, m, rank) in arriving]
        parts = (needed.shared_with(plan.turns_of_maker(maker, name)) for maker in there)
        return sum(parts, Fraction(0)) / needed.share

    for number, segment in enumerate(plan.segments):
        here = f"{where}: segments[{number}]"
        for name in segment.inputs:
            if name not in makers:
                yield Mistake(f"{here}.inputs", f"nothing before it makes {quoted(name)}")
            elif comes(name, segment.rank) < 1:
                yield Mistake(f"{here}.inputs", f"no channel carries {quoted(name)}")
        for name in segment.outputs:
            own = plan.ranks[segment.rank].turns
            others = (plan.turns_of_maker(maker, name) for maker in makers.get(name, ()))
            if any(own.shared_with(other) for other in others):
                yield Mistake(f"{here}.outputs", f"{quoted(name)} is there already")
            makers.setdefault(name, []).append(segment.rank)
    for name in plan.model.outputs:
        if name not in makers or comes(name, plan.sink) < 1:
            yield Mistake(f"{where}: model.outputs", f"{quoted(name)} does not reach the sink")
    for number, channel in enumerate(plan.channels):
        here = f"{where}: channels[{number}]"
        source, destination = channel.source, channel.destination
        if source not in makers.get(channel.tensor, ()) or source == destination:
            found = f"it does not lead {quoted(channel.tensor)} away from the rank that makes it"
            yield Mistake(here, found)
        elif not plan.turns_of_maker(source, channel.tensor).shared_with(
            plan.turns_of_reader(destination, channel.tensor)
        ):
            yield Mistake(here, "its ranks have no frame in common")
