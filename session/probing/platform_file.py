"""A platform file out of what boards were found to have, each value with where it comes from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import yaml

from rankslice.backend.boards.probed import (
    BoardReport,
    Cluster,
    Environment,
    Probed,
    ProbedBoard,
    Route,
)
from rankslice.backend.boards.usable_accelerators import Usable, accelerators_of
from rankslice.framework.specs.core_lists import core_ranges, format_cores
from rankslice.framework.wording import digits, joined, on_one_line

_BANDWIDTH_DIFFERS = 0.1
_LATENCY_DIFFERS = 0.5
_MIN_DIFFERENCE_MS = 0.1


def platform_text(probed: Probed) -> str:
    """Return a platform file in YAML, as ``build`` takes it.

    The same boards with the same measurements give the same text.
    """
    lines = ["# Found and measured by `rankslice probe`; comments state the origin of each value."]
    lines += ["boards:"]
    for board in probed.boards:
        lines += [f"  {_scalar(board.name)}:", *(f"    {line}" for line in _board_lines(board))]
    return "\n".join([*lines, *_link_lines(probed), ""])


# Boards


def _board_lines(board: ProbedBoard) -> Iterator[str]:
    report = board.report
    yield _entry("host", _scalar(board.host), _reached(board))
    if board.user:
        yield _entry("user", _scalar(board.user), "")
    if report.model:
        yield _comment(f"model: {report.model} ({report.model_source})")
    if report.system:
        yield _comment(f"system: {report.system} (/etc/os-release)")
    yield _entry("arch", _scalar(report.arch), "uname -m")
    yield from _python_lines(report)
    if report.cores:
        yield _entry("cores", _core_list(report.cores), "those that programs may use")
    yield from _cluster_lines([*_usable(report)], report.cores)
    if report.memory_mb:
        free = f"/proc/meminfo; {report.available_mb} of it free"
        yield _entry("memory_mb", str(report.memory_mb), free)
    yield _comment(f"disk: {report.disk_free_mb} MB free in {report.home}")
    accelerators = accelerators_of(report)
    for usable in accelerators.usable:
        yield from _accelerator_lines(usable)
    yield from (_comment(remark) for remark in accelerators.remarks)
    yield from (_comment(line) for line in _sensor_lines(report))


def _reached(board: ProbedBoard) -> str:
    if board.address == "localhost":
        return "this machine"
    interfaces = board.report.interfaces
    own = next((interface for interface in interfaces if interface.address == board.address), None)
    here = "this machine, " if not board.report.address else ""
    if own is None:
        return f"{here}{board.address}"
    rate = f"{own.mbps} Mbit/s (/sys/class/net/{own.name}/speed)"
    rate = rate if own.mbps else "rate of the link not known"
    return f"{here}{board.address}, {own.name}, {own.kind}, {rate}"


def _python_lines(report: BoardReport) -> Iterator[str]:
    environment = report.environment
    if environment.version:
        short = ".".join(map(str, environment.numbers))
        remark = "" if environment.runs_jobs else "; too old, jobs need 3.10 or later"
        source = f"{environment.python}, {environment.version}{remark}"
        yield _entry("python", _scalar(short), source)
    for installed in report.environments:
        yield _comment(_environment_text(installed))
    versions = [
        f"Open MPI {installed.version} ({installed.mpirun})" for installed in report.open_mpi
    ]
    yield _comment("; ".join(versions) or "no Open MPI")


def _environment_text(environment: Environment) -> str:
    packages = [
        f"{name} {version or '(version not reported)'}" for name, version in environment.packages
    ]
    text = f"{environment.python} has {joined(packages) or 'nothing that jobs need'}"
    if providers := environment.provider_names:
        text += f"; onnxruntime runs on {joined(providers)}"
    if environment.library and environment.version_of("mpi4py") is not None:
        text += f"; mpi4py loads {environment.library}"
    return text


def _core_list(cores: tuple[int, ...]) -> str:
    """Return cores as YAML; a number alone would be how many there are."""
    ranges = core_ranges(cores)
    return ranges if "-" in ranges and "," not in ranges else f"[{ranges.replace(',', ', ')}]"


def _usable(report: BoardReport) -> Iterator[Cluster]:
    """Yield the clusters, with the cores that programs may use."""
    for cluster in report.clusters:
        if cores := tuple(core for core in cluster.cores if core in report.cores):
            yield replace(cluster, cores=cores)


def _cluster_lines(clusters: Sequence[Cluster], cores: Sequence[int]) -> Iterator[str]:
    """Yield an entry for several clusters with all cores, and otherwise comments."""
    if len(clusters) < 2 or {*cores} != {core for kind in clusters for core in kind.cores}:
        yield from (_comment(f"{format_cores(kind.cores)}: {_about(kind)}") for kind in clusters)
        return
    yield _entry("clusters", "", "a rank is as fast as the slowest of its cores")
    for name, cluster in zip(_cluster_names(clusters), clusters, strict=True):
        parts = [f"cores: {_core_list(cluster.cores)}"]
        parts += [f"kind: {_scalar(cluster.kind)}"] if cluster.kind else []
        parts += [f"max_mhz: {cluster.most_mhz}"] if cluster.most_mhz else []
        yield "  " + _entry(name, f"{{{', '.join(parts)}}}", _about(cluster))


def _cluster_names(clusters: Sequence[Cluster]) -> list[str]:
    """Name clusters by their speed, as boards' makers do."""
    speeds = [(cluster.most_mhz or 0, cluster.capacity or 0) for cluster in clusters]
    ranking = sorted(range(len(clusters)), key=speeds.__getitem__)
    usual = {2: ("little", "big"), 3: ("little", "big", "prime")}.get(len(clusters))
    names = usual or tuple(f"cluster{number}" for number in range(len(clusters)))
    return [names[ranking.index(number)] for number in range(len(clusters))]


def _about(cluster: Cluster) -> str:
    parts = [cluster.kind] if cluster.kind else []
    if cluster.most_mhz:
        least = f"{cluster.least_mhz} to " if cluster.least_mhz else ""
        parts.append(f"{least}{cluster.most_mhz} MHz ({cluster.source})")
    else:
        parts.append("frequency not available")
    if cluster.capacity:
        parts.append(f"capacity {cluster.capacity} of 1024 (cpu_capacity)")
    return ", ".join(parts)


def _accelerator_lines(usable: Usable) -> Iterator[str]:
    pairs = [f"{_scalar(key)}: {_scalar(value)}" for key, value in usable.spec]
    for name, values in (("options", usable.options), ("environment", usable.environment)):
        if values:
            inner = ", ".join(f"{_scalar(key)}: {_scalar(value)}" for key, value in values)
            pairs.append(f"{name}: {{{inner}}}")
    yield _comment(f"{usable.unit}: found {usable.source}")
    yield f"{usable.unit}: {{{', '.join(pairs)}}}"


def _sensor_lines(report: BoardReport) -> Iterator[str]:
    zones = [
        zone.kind or zone.path
        if zone.millicelsius is None
        else f"{zone.kind or zone.path} {zone.millicelsius / 1000:.0f} C"
        for zone in report.zones
    ]
    yield f"thermal zones: {joined(zones)} (/sys/class/thermal)" if zones else "no thermal zones"
    for sensor in report.sensors:
        watts = sensor.microwatts
        power = f", {watts / 1e6:.2f} W when asked" if watts is not None else ""
        rights = "" if sensor.may_read else ", which this account may not read"
        yield f"power: {sensor.name} ({sensor.path}{rights}){power}"
    if not report.sensors:
        yield "no power sensor: idle_w and busy_w are left out"


# Links


@dataclass(frozen=True, slots=True)
class Pair:
    boards: tuple[str, str]
    there: Route
    back: Route

    @property
    def complaints(self) -> tuple[str, ...]:
        return tuple(
            f"{route.source} cannot connect to {route.target}: {route.complaint}"
            for route in (self.there, self.back)
            if route.complaint
        )

    @property
    def bandwidth_mbps(self) -> float:
        """Of the slower direction, in megabits of payload per second."""
        return min(self.there.bits_per_s, self.back.bits_per_s) / 1e6

    @property
    def latency_ms(self) -> float:
        return max(self.there.latency_us, self.back.latency_us) / 1e3


def measured_pairs(routes: Sequence[Route]) -> tuple[Pair, ...]:
    """Return routes with their ways back, in the order in which they first occur."""
    by_ends = {(route.source, route.target): route for route in routes}
    pairs: dict[frozenset[str], Pair] = {}
    for (source, target), route in by_ends.items():
        back = by_ends[target, source]
        pairs.setdefault(frozenset((source, target)), Pair((source, target), route, back))
    return tuple(pairs.values())


def _link_lines(probed: Probed) -> Iterator[str]:
    pairs = measured_pairs(probed.routes)
    for pair in pairs:
        for complaint in pair.complaints:
            yield _comment(f"no link: {complaint}; is there a firewall?")
    measured = [pair for pair in pairs if not pair.complaints]
    if not measured:
        return
    bandwidth = statistics.median(pair.bandwidth_mbps for pair in measured)
    latency = statistics.median(pair.latency_ms for pair in measured)
    yield "links:"
    origin = f"default: median of {len(measured)} pairs"
    origin = origin if len(measured) > 1 else _directions(measured[0])
    yield _comment(f"payload of TCP, as channels get it; {origin}", 2)
    yield f"  default: {{{_link(bandwidth, latency)}}}"
    others = [pair for pair in measured if _differs(pair, bandwidth, latency)]
    if others:
        yield "  pairs:"
    for pair in others:
        ends = ", ".join(map(_scalar, pair.boards))
        link = _link(pair.bandwidth_mbps, pair.latency_ms)
        yield _comment(_directions(pair), 4)
        yield f"    - {{between: [{ends}], {link}}}"


def _differs(pair: Pair, bandwidth: float, latency: float) -> bool:
    wide = abs(pair.bandwidth_mbps - bandwidth) > _BANDWIDTH_DIFFERS * bandwidth
    apart = abs(pair.latency_ms - latency)
    return wide or apart > max(_LATENCY_DIFFERS * latency, _MIN_DIFFERENCE_MS)


def _directions(pair: Pair) -> str:
    return ", ".join(
        f"{route.source} to {route.target} {digits(route.bits_per_s / 1e6, 4)} Mbit/s"
        f" and {digits(route.latency_us / 1e3)} ms"
        for route in (pair.there, pair.back)
    )


def _link(bandwidth: float, latency: float) -> str:
    return f"bandwidth_mbps: {_digits(bandwidth)}, latency_ms: {_digits(latency)}"


def _digits(value: float) -> str:
    """Return a number with three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):f}".rstrip("0").rstrip(".")


# Text


def _entry(key: str, value: str, source: str) -> str:
    return f"{key}: {value}".rstrip() + (f"  # {on_one_line(source)}" if source else "")


def _comment(text: str, indent: int = 0) -> str:
    return f"{' ' * indent}# {on_one_line(text)}"


def _scalar(text: str) -> str:
    """Return a text as YAML, also where brackets and commas part values."""
    plain = yaml.safe_dump([text], default_flow_style=True, width=math.inf)[1:-2]
    if plain == text:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', width=math.inf)
    return quoted.removesuffix("\n")
