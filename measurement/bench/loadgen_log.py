"""What MLPerf's load generator measured, read from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.untrusted_json import UntrustedJsonError, untrusted_json
from rankslice.measurement.bench.scenarios import ScenarioFigures

MISSING = "pip install 'rankslice[loadgen]'"

_LINE = ":::MLLOG "


@dataclass(frozen=True, slots=True)
class LoadgenFigures:
    """What the generator measured; times are seconds."""

    version: str
    queries: int
    is_valid: bool
    """As the generator has it; for a server also: within the limit for the latency."""
    reason: str
    mean_s: float
    percentile_s: float | None
    """Of these latencies, the scenario's."""
    proven_s: float | None
    """Its estimate by early stopping, which a server has not."""
    throughput_fps: float | None
    """Frames per second; ``None``: the generator tells none in the scenario."""
    overruns: int
    """Queries above the limit of a server."""


@dataclass(frozen=True, slots=True)
class LoadgenTest:
    """A test of the generator, seen from both sides."""

    told: LoadgenFigures
    """What it measured itself."""
    seen: ScenarioFigures
    """What our own clock and statistics say of the same queries, between the call that gives them
    and the one that takes their results; of a server without the lateness of that call."""


def figures_of_log(scenario: str, log: str) -> LoadgenFigures:
    """Return what the generator's detailed log says.

    Args:
        scenario: our name of it.
        log: text of ``mlperf_log_detail.txt``.

    Raises:
        RankSliceError: the log is not what version 6 of the generator writes.
    """
    values: dict[str, Any] = {}
    for line in log.splitlines():
        if not line.startswith(_LINE):
            continue
        try:
            entry = untrusted_json(line.removeprefix(_LINE).encode())
        except UntrustedJsonError as error:
            raise _unlike(str(error)) from None
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            values[entry["key"]] = entry.get("value")
    by_query = "query_" if scenario == "multi" else ""
    percentile = {
        "single": "result_90.00_percentile_latency_ns",
        "multi": "result_99.00_percentile_per_query_latency_ns",
        "server": "result_99.00_percentile_latency_ns",
    }.get(scenario)
    proven = {"single": "early_stopping_latency_ss", "multi": "early_stopping_latency_ms"}
    throughput = {
        "single": "result_qps_with_loadgen_overhead",
        "server": "result_completed_samples_per_sec",
        "offline": "result_samples_per_second",
    }
    is_valid = values.get("result_validity") == "VALID"
    return LoadgenFigures(
        version=str(values.get("loadgen_version", "")).partition(" ")[0],
        queries=int(_number(values, "result_query_count")),
        is_valid=is_valid,
        reason="" if is_valid else _reason(values),
        mean_s=1e-9 * _number(values, f"result_mean_{by_query}latency_ns"),
        percentile_s=None if percentile is None else 1e-9 * _number(values, percentile),
        proven_s=1e-9 * _number(values, proven[scenario]) if scenario in proven else None,
        throughput_fps=_number(values, throughput[scenario]) if scenario in throughput else None,
        overruns=int(values.get("result_overlatency_query_count") or 0),
    )


def _number(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if not isinstance(value, int | float):
        raise _unlike(f"it has no number {key}")
    return value


def _reason(values: Mapping[str, Any]) -> str:
    """Return why a result is not valid, in the generator's words, on one line."""
    told = [values.get("result_invalid_reason"), values.get("early_stopping_result")]
    return " ".join(str(each or "").replace("*", " ") for each in told).strip()


def _unlike(found: str) -> RankSliceError:
    return RankSliceError(Mistake("--loadgen", f"its log cannot be read: {found}", MISSING))
