"""Whether the machine was quiet while something was measured, as far as the kernel tells."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.measurement.bench.records import Machine, Noise, Start

MOST_OTHER_CORES = 0.2
"""Processor time of others over time from which a start was disturbed. A job's guard and what ssh
needs are among them."""
MOST_STEAL = 0.01
_MOST_LOAD = 0.3
"""Processes that could run, per core, before the first start."""
_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernel has counted so far."""

    at_s: float
    busy_s: float
    """Processor time of all processes of the machine."""
    own_s: float
    """Of this process and those it has waited for."""
    steal_s: float
    throttled: int


def read_counters(proc: Path = Path("/proc"), system: Path = _SYSTEM) -> Counters:
    """Return the counters now; those that the system does not have are 0."""
    busy, steal = _processor_times(proc / "stat")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(each.ru_utime + each.ru_stime for each in used)
    files = system.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    return Counters(time.monotonic(), busy, own, steal, sum(map(_number, files)))


def noise_between(before: Counters, after: Counters) -> Noise:
    """Return what the machine did beside what was measured."""
    seconds = max(after.at_s - before.at_s, 1e-6)
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    cores = os.cpu_count() or 1
    return Noise(
        other_cores=round(max(0.0, others / seconds), 3),
        steal_share=round(max(0.0, (after.steal_s - before.steal_s) / seconds / cores), 4),
        throttled=max(0, after.throttled - before.throttled),
    )


def is_quiet(noise: Noise) -> bool:
    """Return whether nothing disturbed a start."""
    return not any(_disturbances([noise]))


def machine_facts(versions: Iterable[tuple[str, str]], load_before: float) -> Machine:
    """Return what this machine is.

    Args:
        versions: of programs and packages.
        load_before: the first of ``os.getloadavg()`` before the first start.
    """
    return Machine(
        host=platform.node(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        governor=_text(_SYSTEM / "cpu0" / "cpufreq" / "scaling_governor"),
        versions=tuple(versions),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
    )


def unquiet(machine: Machine, starts: Sequence[Start]) -> list[str]:
    """Return what disturbed a benchmark, a sentence each; empty: the machine was quiet."""
    found = []
    if machine.load_before > _MOST_LOAD * machine.cores:
        found.append(
            f"before the first start {machine.load_before:.1f} processes could run on average"
        )
    disturbed = [start.noise for start in starts if not is_quiet(start.noise)]
    if disturbed:
        what = ", ".join(_disturbances(disturbed))
        found.append(f"{len(disturbed)} of {len(starts)} starts were disturbed: {what}")
    if machine.governor not in ("", "performance"):
        found.append(f"the governor {machine.governor!r} changes the processor's frequency")
    return found


def _disturbances(noises: Sequence[Noise]) -> Iterator[str]:
    others = max(noise.other_cores for noise in noises)
    steal = max(noise.steal_share for noise in noises)
    throttled = sum(noise.throttled for noise in noises)
    if others > MOST_OTHER_CORES:
        yield f"other processes took up to {others:.1f} cores"
    if steal > MOST_STEAL:
        yield f"the hypervisor took up to {100 * steal:.0f} % of the processors"
    if throttled:
        yield f"cores were too warm and slowed down {throttled} times"


def _processor_times(stat: Path) -> tuple[float, float]:
    """Return the busy and the stolen seconds of all cores."""
    line = _text(stat).partition("\n")[0]
    found = [int(part) for part in line.split()[1:9] if part.isdigit()]
    if len(found) < 8:
        return 0.0, 0.0
    user, nice, system, _, _, *interrupts, steal = found
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + sum(interrupts)) / tick, steal / tick


def _processor() -> str:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text.isdigit() else 0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
