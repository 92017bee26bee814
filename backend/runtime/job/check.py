"""What contradicts itself in a job, row by row."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain, count, islice
from typing import Any

from ..errors import JobError
from .records import Facts, Job, Rank, Route, Segment, Tensor
from .strict import Fault, as_record, faults
from .turns import MAX_TURNS, Turns
from .wording import joined, quoted

SUBMODEL = re.compile(r"submodels/[A-Za-z0-9_,@%][A-Za-z0-9_,@%.-]*")

MAX_FRAMES = 1 << 16

_MAX_SHOWN = 20


def check_job(job: Any) -> Iterator[Fault]:
    problems = [*faults(Job, job)]
    yield from problems or contradictions(as_record(Job, job))


def sound(job: Any, where: str) -> Job:
    """Check a job, and make its lists tuples.

    ``where``: the driver's name, for messages.

    Raises:
        JobError: it is none, or contradicts itself. The message has a line for each contradiction.
    """
    problems = [*islice(check_job(job), _MAX_SHOWN)]
    if problems:
        texts = (": ".join(filter(None, (where, *fault[:2]))) for fault in problems)
        ends = (f"; {expected}" if expected else "" for _, _, expected in problems)
        raise JobError("\n".join(map(str.__add__, texts, ends)))
    checked: Job = as_record(Job, job)
    return checked


def contradictions(job: Job) -> Iterator[Fault]:
    problems = [*_ends(job), *_tensors(job), *chain.from_iterable(map(_rank, job.ranks, count()))]
    problems += _files(job)
    yield from problems
    if problems:
        return
    names = {*job.tensors}
    for number, rank in enumerate(job.ranks):
        yield from _names(rank, f"ranks[{number}]", len(job.ranks), names)
        if rank.surge is not None:
            yield from _names(rank.surge, f"ranks[{number}].surge", len(job.ranks), names)
    for route in job.routes:
        path = ".surge" if route.usual is not None else ""
        yield from _Flow(route, path).faults()
        try:
            _ = route.segments
        except JobError:
            found = "segments wait for each other, or for a later one of their own rank"
            yield f"ranks{path and '[...].surge'}", found, "expected another order"


def _ends(job: Job) -> Iterator[Fault]:
    for name, window in (("window", job.window), ("surge_window", job.surge_window)):
        if window is not None and window not in range(1, MAX_FRAMES + 1):
            yield name, f"found {window}", f"expected a number from 1 to {MAX_FRAMES}"
    if not job.ranks:
        yield "ranks", "there are none", "expected one at least"
    for name, rank in (("source", job.source), ("sink", job.sink)):
        if rank not in range(len(job.ranks)):
            yield name, f"there is no rank {rank}", f"expected 0 to {len(job.ranks) - 1}"
    if len({rank.key for rank in job.ranks}) < len(job.ranks):
        yield "ranks", "two ranks have the same key", ""
    first: dict[str, Rank] = {}
    for number, spec in enumerate(job.ranks):
        if spec.host != (there := first.setdefault(spec.board, spec)).host:
            expected = f"the host of board {quoted(spec.board)} is {quoted(there.host)}"
            yield f"ranks[{number}].host", f"found {quoted(spec.host)}", expected
        if (spec.surge is None) != (job.surge_window is None):
            found = "it is missing" if spec.surge is None else "there is no surge_window"
            yield f"ranks[{number}].surge", found, "expected both or neither"


def _tensors(job: Job) -> Iterator[Fault]:
    tables = {"inputs": job.inputs, "between": job.between, "outputs": job.outputs}
    for table, tensors in tables.items():
        for number, tensor in enumerate(tensors):
            yield from _tensor(tensor, f"{table}[{number}]")
    inputs = {tensor.name: tensor for tensor in job.inputs}
    outputs = {tensor.name: tensor for tensor in job.outputs}
    inside = {tensor.name for tensor in job.between}
    if sum(map(len, tables.values())) > len(inputs) + len(outputs) + len(inside):
        yield "tensors", "two tensors have the same name", ""
    for name in inside & {*inputs, *outputs}:
        yield "between", f"{quoted(name)} is an input or output, too", "expected it there alone"
    for name in {*inputs} & {*outputs}:
        if inputs[name] != outputs[name]:
            yield "outputs", f"{quoted(name)} is another tensor than in inputs", ""


def _tensor(tensor: Tensor, path: str) -> Iterator[Fault]:
    try:
        size = tensor.nbytes
    except JobError:
        size = 0
    if not (size or tensor.is_open) or min(tensor.shape, default=1) < 0:
        yield path, "it has no type and shape of a fixed size", ""
    if tensor.symbols and len(tensor.symbols) != len(tensor.shape):
        found = f"found {len(tensor.symbols)}"
        yield f"{path}.symbols", found, "expected one for each axis, or none"
    elif not all(map(str.isprintable, tensor.symbols)):
        yield f"{path}.symbols", "a name has characters that cannot be printed", ""
    if tensor.quantisation and (len(tensor.quantisation) != 2 or tensor.quantisation[0] <= 0):
        yield f"{path}.quantisation", "it is none", "expected a scale above 0, and a zero point"


def _rank(rank: Rank, number: int) -> Iterator[Fault]:
    path = f"ranks[{number}]"
    if rank.rank != number:
        yield f"{path}.rank", f"found {rank.rank}", f"expected {number}"
    if not rank.cores or min(rank.cores) < 0 or len({*rank.cores}) < len(rank.cores):
        found = f"found {list(rank.cores)}"
        yield f"{path}.cores", found, "expected numbers of cores, each once, and one at least"
    yield from _turns(rank.turns, f"{path}.turns")
    if rank.surge is not None:
        yield from _turns(rank.surge.turns, f"{path}.surge.turns")


def _turns(turns: Turns, path: str) -> Iterator[Fault]:
    if not 1 <= turns.period <= MAX_TURNS:
        yield f"{path}.period", f"found {turns.period}", f"expected 1 to {MAX_TURNS}"
    elif not turns.positions or list(turns.positions) != sorted(
        {*turns.positions} & {*range(turns.period)}
    ):
        found = f"found {list(turns.positions)}"
        yield f"{path}.positions", found, f"expected 0 to {turns.period - 1}, ascending"


def _files(job: Job) -> Iterator[Fault]:
    seen: set[str] = set()
    for number, rank in enumerate(job.ranks):
        for path, way in ((f"ranks[{number}]", rank), (f"ranks[{number}].surge", rank.surge)):
            for index, segment in enumerate(way.runs if way else ()):
                here = f"{path}.runs[{index}].file"
                if not SUBMODEL.fullmatch(segment.file):
                    found = f"{quoted(segment.file)} is not the name of a sub-model's file"
                    yield here, found, "expected submodels/NAME"
                if segment.file in seen:
                    yield here, "two segments have the same file", ""
                seen.add(segment.file)
                yield from _facts(segment.facts, f"{path}.runs[{index}].facts")


def _facts(facts: Facts, path: str) -> Iterator[Fault]:
    for name, text in (("keeps", facts.keeps), ("control_flow", facts.control_flow)):
        if not text.isprintable():
            yield f"{path}.{name}", "it has characters that cannot be printed", ""
    if facts.operators < 0:
        yield f"{path}.operators", f"found {facts.operators}", "expected 0 or more"


def _names(way: Rank | Route, path: str, ranks: int, tensors: set[str]) -> Iterator[Fault]:
    named = [(f"receives[{n}]", receive.tensor) for n, receive in enumerate(way.receives)]
    named += [(f"sends[{n}]", send.tensor) for n, send in enumerate(way.sends)]
    for n, segment in enumerate(way.runs):
        named += [(f"runs[{n}].inputs", name) for name in segment.inputs]
        named += [(f"runs[{n}].outputs", name) for name in segment.outputs]
    for place, name in named:
        if name not in tensors:
            yield f"{path}.{place}", f"there is no tensor {quoted(name)}", ""
    others = [(f"receives[{n}].source", receive.source) for n, receive in enumerate(way.receives)]
    others += [(f"sends[{n}].to", send.to) for n, send in enumerate(way.sends)]
    for place, other in others:
        if other not in range(ranks):
            yield f"{path}.{place}", f"there is no rank {other}", f"expected 0 to {ranks - 1}"


class _Flow:
    def __init__(self, job: Job, path: str) -> None:
        self._job = job
        self._path = path
        self._makers: dict[str, list[int]] = defaultdict(list)
        for tensor in job.inputs:
            self._makers[tensor.name].append(job.source)
        self._sent = Counter(
            (send.tensor, rank.rank, send.to) for rank in job.ranks for send in rank.sends
        )
        self._received = Counter(
            (receive.tensor, receive.source, rank.rank)
            for rank in job.ranks
            for receive in rank.receives
        )

    def faults(self) -> Iterator[Fault]:
        for rank in self._job.ranks:
            for index, segment in enumerate(rank.runs):
                yield from self._makes(rank, segment, f"{self._at(rank)}.runs[{index}].outputs")
        for rank in self._job.ranks:
            for index, segment in enumerate(rank.runs):
                yield from self._reads(rank, segment, f"{self._at(rank)}.runs[{index}].inputs")
            yield from self._sends(rank)
            yield from self._receives(rank)
        for number, tensor in enumerate(self._job.outputs):
            if self._comes(tensor.name, self._job.sink) < 1:
                found = f"{quoted(tensor.name)} does not reach the sink, rank {self._job.sink}"
                yield f"outputs[{number}]", found, ""

    def _at(self, rank: Rank) -> str:
        return f"ranks[{rank.rank}]{self._path}"

    def _makes(self, rank: Rank, segment: Segment, path: str) -> Iterator[Fault]:
        for name in segment.outputs:
            others = [
                other
                for other in self._makers[name]
                if rank.turns.shared_with(self._job.turns_of_maker(other, name))
            ]
            if others:
                found = f"rank {others[0]} makes {quoted(name)} already"
                yield path, found, "expected one rank to make it in a frame"
            self._makers[name].append(rank.rank)

    def _reads(self, rank: Rank, segment: Segment, path: str) -> Iterator[Fault]:
        for name in segment.inputs:
            if not self._makers[name]:
                yield path, f"nobody makes {quoted(name)}", ""
            elif self._comes(name, rank.rank) < 1:
                makers = " and ".join(f"rank {maker}" for maker in self._makers[name])
                found = f"rank {rank.rank} does not get {quoted(name)} in each of its frames"
                yield path, found, f"{makers} can send it"

    def _comes(self, name: str, rank: int) -> Fraction:
        needed = self._job.turns_of_reader(rank, name)
        there = [
            maker
            for maker in self._makers[name]
            if maker == rank or (name, maker, rank) in self._sent
        ]
        parts = (needed.shared_with(self._job.turns_of_maker(maker, name)) for maker in there)
        return sum(parts, Fraction(0)) / needed.share

    def _sends(self, rank: Rank) -> Iterator[Fault]:
        for index, send in enumerate(rank.sends):
            path, name = f"{self._at(rank)}.sends[{index}]", quoted(send.tensor)
            way = (send.tensor, rank.rank, send.to)
            made = self._job.turns_of_maker(rank.rank, send.tensor)
            if rank.rank not in self._makers[send.tensor] or send.to == rank.rank:
                found = f"rank {rank.rank} does not make {name}, or sends it to itself"
                yield path, found, "expected what one of its runs makes, for another rank"
            elif way not in self._received:
                found = f"rank {rank.rank} sends {name} to {send.to}"
                sources = [s for name, s, to in self._received if (name, to) == way[::2]]
                yield path, found, f"rank {send.to} receives it from {_listed(sources)}"
            elif self._sent[way] > 1:
                yield path, f"rank {rank.rank} sends {name} to {send.to} twice", ""
            elif not made.shared_with(self._job.turns_of_reader(send.to, send.tensor)):
                yield path, f"ranks {rank.rank} and {send.to} have no frame in common", ""

    def _receives(self, rank: Rank) -> Iterator[Fault]:
        read = {name for segment in rank.runs for name in segment.inputs}
        if rank.rank == self._job.sink:
            read |= {tensor.name for tensor in self._job.outputs}
        for index, receive in enumerate(rank.receives):
            path, name = f"{self._at(rank)}.receives[{index}]", quoted(receive.tensor)
            way = (receive.tensor, receive.source, rank.rank)
            found = f"rank {rank.rank} receives {name} from {receive.source}"
            if way not in self._sent:
                ends = [to for name, source, to in self._sent if (name, source) == way[:2]]
                yield path, found, f"rank {receive.source} sends it to {_listed(ends)}"
            elif self._received[way] > 1:
                yield path, f"{found} twice", ""
            elif receive.tensor not in read:
                yield path, found, "it needs that for none of its runs"


def _listed(ranks: Sequence[int]) -> str:
    return joined([*map(str, sorted(ranks))]) or "nobody"
