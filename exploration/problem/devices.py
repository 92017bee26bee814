"""The accelerators that may become ranks: their kinds, and those that may take turns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Rank, Turns
from rankslice.framework.engines import USUAL_ENGINE
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.platform import Board, Platform
from rankslice.framework.specs.core_lists import core_ranges
from rankslice.framework.specs.keys import refuse_turns
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.weighted_turns import by_weights


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator of a board that may become a rank."""

    key: str
    """Mapping key: ``edge01_cpu0-3``, ``edge01_gpu``."""
    board: int
    """Index of its board in the platform."""
    kind: int
    """Row of the time table: devices of one kind take the same times."""
    cores: tuple[int, ...] = ()
    """Cores that it computes on; for a GPU or NPU its host core, if the key names one."""
    host_share: float | None = None
    """Share of its time in which a GPU or NPU keeps its host core busy, from 0 to 1; ``None``: not
    measured, and counted as nothing. Of a CPU device 1."""
    power_share: float = 1.0
    """Its share of what the board draws above idle when all its accelerators are busy."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices that take the same times: equal accelerators of equal boards."""

    key: str
    """Mapping key of the first of them, where the others' times can be measured."""
    engine: str
    options: tuple[tuple[str, str], ...] = ()


Accelerators: TypeAlias = tuple[tuple[Kind, ...], tuple[Device, ...]]


def default_keys(platform: Platform, *, per_core: bool = False) -> tuple[str, ...]:
    """Return mapping keys of the accelerators of a platform, board by board.

    Each cluster of a board's cores is one, or its CPU with all cores where no clusters are known;
    so are each GPU and each NPU.

    Args:
        per_core: take each core of a CPU as an accelerator, not the whole CPU.
    """
    return tuple(
        f"{board.name}_{unit}" for board in platform.boards for unit in _units(board, per_core)
    )


def _units(board: Board, per_core: bool) -> Iterator[str]:
    if per_core:
        yield from (f"cpu{core}" for core in board.known_cores)
    else:
        yield from (f"cpu{core_ranges(cores)}" for cores in board.cpus)
    yield from board.gpus_and_npus


def kinds_and_devices(
    keys: Sequence[str],
    platform: Platform,
    *,
    default_engine: str = USUAL_ENGINE,
    alike: Sequence[Collection[str]] = (),
) -> Accelerators:
    """Return what kinds of accelerators mapping keys name, and each key's device.

    Two devices are of one kind if their boards are described alike (but for name, host and
    account), and so are their accelerators; of CPUs they must have the same cores, as cores of
    one board can differ, or as many of each cluster. On ``local``, where nothing is described,
    cores are taken to be alike.

    Args:
        keys: of a mapping, in any order; they may share cores.
        default_engine: engine of CPU ranks on boards whose platform names none.
        alike: keys that are known to be of one kind, each such group for itself.

    Raises:
        RankSliceError: a key cannot be understood, names ranks that take turns, or asks for what
            the platform does not have.
    """
    refuse_turns(keys, platform.name)
    mapping = Mapping(platform.name, tuple(MappingEntry(key, ()) for key in keys))
    # One at a time: all of them need not be ranks of one job, and host cores are not chosen yet.
    placements = place_ranks(
        mapping, platform, share_cores=True, default_engine=default_engine
    ).ranks
    boards = {board.name: number for number, board in enumerate(platform.boards)}
    groups = {key: number for number, group in enumerate(alike) for key in group}
    kinds: dict[object, int] = {}
    by_number: list[Kind] = []
    devices = []
    for placement in placements:
        board = platform.boards[boards[placement.board]]
        names = [_likeness(placement, board, platform), groups.get(placement.key)]
        known = [kinds[name] for name in names if name in kinds]
        if not known:
            known = [len(by_number)]
            by_number.append(Kind(placement.key, placement.engine, placement.options))
        kinds |= {name: known[0] for name in names if name is not None}
        devices.append(_device(placement, board, boards[board.name], known[0]))
    return tuple(by_number), tuple(devices)


def _likeness(placement: Rank, board: Board, platform: Platform) -> object:
    cores: object = ()
    if placement.accelerator == "cpu":
        cores = len(placement.cores) if platform.name == "local" else placement.cores
        if board.clusters:
            cores = tuple(
                (cluster.name, len({*cluster.cores} & {*placement.cores}))
                for cluster in board.clusters
            )
    accelerator = placement.accelerator.rstrip("0123456789")
    described = replace(board, name="", host="", user="")
    return described, accelerator, cores, placement.engine, placement.options


def _device(placement: Rank, board: Board, number: int, kind: int) -> Device:
    units = 1 + len(board.gpus) + len(board.npus)
    is_cpu = placement.accelerator == "cpu"
    share = len(placement.cores) / len(board.known_cores) if is_cpu else 1.0
    return Device(
        key=placement.key,
        board=number,
        kind=kind,
        cores=placement.cores if is_cpu or "@" in placement.key else (),
        host_share=1.0 if is_cpu else None,
        power_share=share / units,
    )


@dataclass(frozen=True)
class Team:
    """Devices that take turns: one entry of a mapping, and a rank for each."""

    devices: tuple[int, ...]
    """Indices of the problem's devices. Where frames enter, or results leave, the first has them
    all."""
    weights: tuple[int, ...] = ()
    """How many frames each handles of those of all; empty: equally many."""

    @cached_property
    def turns(self) -> tuple[Turns, ...]:
        return by_weights(self.weights or (1,) * len(self.devices))

    @cached_property
    def pattern(self) -> NDArray[np.int64]:
        """(period,): the device that handles each frame, and again from the beginning."""
        device_of_frame = np.zeros(self.turns[0].period, np.int64)
        for device, turns in zip(self.devices, self.turns, strict=True):
            device_of_frame[list(turns.positions)] = device
        return device_of_frame

    def key(self, keys: Sequence[str]) -> str:
        """Return the key of the mapping's entry: ``a*2|b``."""
        weights = self.weights or (1,) * len(self.devices)
        parts = zip(self.devices, weights, strict=True)
        return "|".join(keys[device] + (f"*{n}" if n > 1 else "") for device, n in parts)


_MAX_TEAMS = 64
"""Of one size; of more devices only neighbours take turns."""


def teams_of_kinds(kinds: Sequence[int], most_turns: int) -> tuple[Team, ...]:
    """Return the teams in which devices of one kind can take turns."""
    alike: dict[int, list[int]] = defaultdict(list)
    for device, kind in enumerate(kinds):
        alike[kind].append(device)
    return tuple(
        Team(devices)
        for size in range(2, most_turns + 1)
        for alike_devices in alike.values()
        for devices in _chosen(alike_devices, size)
    )


def _chosen(devices: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield so many devices of some: in all ways, or if there are too many, neighbours alone."""
    if math.comb(len(devices), size) <= _MAX_TEAMS:
        yield from combinations(devices, size)
        return
    for first in range(len(devices) - size + 1):
        yield tuple(devices[first : first + size])
