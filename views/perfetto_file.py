"""A trace as a file for Perfetto, in its own packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.measurement.trace.journeys import NEVER
from rankslice.measurement.trace.trace_findings import Findings
from rankslice.views.board_charts import Counter
from rankslice.views.trace_timeline import MESSAGE, WORK, Slice, Timeline, Track

MISSING = "pip install 'rankslice[perfetto]'"

_COUNTER = 1
"""Unique number of the counter's track; those of ranks and of tracks in them follow."""
_FLOW_BITS = 40
"""Of a flow's number for the frame; the channel has the others."""


def check_perfetto(option: str) -> None:
    """Raise if the package that has Perfetto's packets is not installed."""
    try:
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2  # noqa: F401
    except ImportError:
        findings = "needs the package perfetto, which is not installed"
        raise RankSliceError(Mistake(option, findings, MISSING)) from None


def perfetto_bytes(findings: Findings, drawn: Timeline, counters: Sequence[Counter] = ()) -> bytes:
    """Return the bytes of a trace that Perfetto opens.

    Each board is a machine, each rank a process, each thread a track of it. Arrows lead from who
    makes a tensor to who reads it, through the message if there is one. Perfetto draws none from
    one machine to another. What a board was like are counters below a track with its name, and what
    a rank took are counters of its process.
    """
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    file = Trace()
    plan = findings.journeys.plan
    boards = list(dict.fromkeys(rank.board for rank in plan.ranks))
    packets = _Packets(file, len(boards) > 1)
    for number, board in enumerate(boards):
        packets.open_machine(number, board)
    machine = {rank.rank: boards.index(rank.board) for rank in plan.ranks}
    for rank in plan.ranks:
        packets.rank(machine[rank.rank], rank.rank, rank.key)
    first = _rank_uuid(len(plan.ranks))
    for number, track in enumerate(drawn.tracks):
        packets.track_of_rank(machine[track.rank], first + number, track)
    ways = {channel.number for channel in plan.channels}
    for one in drawn.slices:
        packets.slice(machine[drawn.tracks[one.track].rank], first + one.track, one, ways)
    packets.counter(machine[plan.job.source], _COUNTER, "frames inside", "frames", drawn.inside)
    begin_ns = min((one.begin_ns for one in drawn.slices), default=0)
    group = first + len(drawn.tracks)
    for number in sorted({boards.index(counter.board) for counter in counters}):
        packets.track(number, group + number, boards[number])
    uuids = {f"rank{rank.rank}": _rank_uuid(rank.rank) for rank in plan.ranks}
    for uuid, counter in enumerate(counters, group + len(boards)):
        number = boards.index(counter.board)
        quantity, _, part = counter.name.partition(".")
        name = quantity if part in uuids else counter.name
        values = _from(counter.values, begin_ns)
        parent = uuids.get(part, group + number)
        packets.counter(number, uuid, name, counter.unit, values, parent)
    return bytes(file.SerializeToString())


def _from(values: Sequence[tuple[int, float]], begin_ns: int) -> list[tuple[int, float]]:
    """Return a counter's values from a time on, beginning with the one that it had then."""
    before = sum(time <= begin_ns for time, _ in values)
    return [(max(time, begin_ns), value) for time, value in values[max(0, before - 1) :]]


def _rank_uuid(rank: int) -> int:
    return _COUNTER + 1 + rank


class _Packets:
    """Adds packets to a file."""

    def __init__(self, file: Any, has_machines: bool) -> None:
        self._file = file
        self._has_machines = has_machines

    def _new(self, machine: int, time_ns: int | None = None) -> Any:
        packet = self._file.packet.add()
        packet.trusted_packet_sequence_id = machine + 1
        if self._has_machines and machine:  # the first one is the host, which has no number
            packet.machine_id = machine
        if time_ns is not None:
            packet.timestamp = max(0, time_ns)
        return packet

    def open_machine(self, machine: int, board: str) -> None:
        packet = self._new(machine)
        packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
        packet.system_info.machine_name = board

    def track(self, machine: int, uuid: int, name: str = "", parent: int = 0) -> Any:
        """Add a track, below another one if it is given; return its descriptor."""
        descriptor = self._new(machine).track_descriptor
        descriptor.uuid = uuid
        if name:
            descriptor.name = name
        if parent:
            descriptor.parent_uuid = parent
        return descriptor

    def rank(self, machine: int, rank: int, key: str) -> None:
        process = self.track(machine, _rank_uuid(rank)).process
        process.pid, process.process_name = rank + 1, f"rank {rank} {key}"

    def track_of_rank(self, machine: int, uuid: int, track: Track) -> None:
        parent = _rank_uuid(track.rank)
        if track.kind != WORK:
            self.track(machine, uuid, track.name, parent)
            return
        thread = self.track(machine, uuid, parent=parent).thread
        thread.pid, thread.tid = track.rank + 1, 1000 * (track.rank + 1) + track.thread
        thread.thread_name = track.name

    def slice(self, machine: int, uuid: int, one: Slice, channels: set[int]) -> None:
        """Add a slice, or a moment, with the arrows that begin and end there."""
        begin = self._new(machine, one.begin_ns)
        event = begin.track_event
        event.track_uuid = uuid
        event.name = one.name
        event.categories.append(one.kind)
        event.flow_ids.extend(_flows(one.leaves_by, one.frame, channels))
        flows = _flows(one.comes_by, one.frame, channels)
        # An arrow passes through the message, and through the moment when it came.
        (event.flow_ids if one.kind == MESSAGE else event.terminating_flow_ids).extend(flows)
        if one.frame != NEVER:
            _annotate(event, "frame", int_value=one.frame)
        if one.is_critical:
            _annotate(event, "on the critical path", bool_value=True)
        if one.begin_ns == one.end_ns:
            event.type = event.TYPE_INSTANT
            return
        event.type = event.TYPE_SLICE_BEGIN
        end = self._new(machine, one.end_ns).track_event
        end.type = end.TYPE_SLICE_END
        end.track_uuid = uuid

    def counter(
        self,
        machine: int,
        uuid: int,
        name: str,
        unit: str,
        values: Sequence[tuple[int, float]],
        parent: int = 0,
    ) -> None:
        self.track(machine, uuid, name, parent).counter.unit_name = unit
        for time_ns, value in values:
            event = self._new(machine, time_ns).track_event
            event.type = event.TYPE_COUNTER
            event.track_uuid = uuid
            if isinstance(value, int):
                event.counter_value = value
            else:
                event.double_counter_value = value


def _annotate(event: Any, name: str, **value: Any) -> None:
    annotation = event.debug_annotations.add()
    annotation.name = name
    for field, content in value.items():
        setattr(annotation, field, content)


def _flows(numbers: tuple[int, ...], frame: int, channels: set[int]) -> Iterator[int]:
    for number in numbers:
        if number in channels:
            yield number << _FLOW_BITS | frame
