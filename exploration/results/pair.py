"""Two mappings for one job: for the usual load, and for a surge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.exploration.objectives import rate_text
from rankslice.exploration.results.answer import recommended
from rankslice.exploration.results.records import Candidate
from rankslice.framework.wording import digits

BUSY = 0.9
"""Share of its rate up to which a route takes frames before `run` changes to the other one."""


def routes(
    candidates: Sequence[Candidate], fps: float, surge_fps: float
) -> tuple[Candidate, Candidate] | None:
    """Return the mapping of least latency for the usual load, and one for the surge.

    ``None``: for one of them no mapping is fast enough.
    """
    calm = [each for each in candidates if BUSY * each.best_known.throughput_fps >= fps]
    fast = [each for each in candidates if each.best_known.throughput_fps >= surge_fps]
    if not calm or not fast:
        return None
    normal = min(calm, key=_latency_then_rate)
    return normal, normal if normal in fast else recommended(fast, surge_fps)


def _latency_then_rate(candidate: Candidate) -> tuple[float, float]:
    figures = candidate.best_known
    return figures.latency_s, -figures.throughput_fps


def routes_text(
    found: tuple[Candidate, Candidate] | None, fps: float, surge_fps: float
) -> Iterator[str]:
    """Yield sentences about the two mappings."""
    if found is None:
        rates = f"{rate_text(fps)} and {rate_text(surge_fps)} frames/s"
        yield f"There is no pair of mappings for {rates}: at least one of these rates is too high."
        return
    normal, surge = found
    if normal is surge:
        yield (
            f"Mapping {normal.number} has the least latency and keeps up with a surge of"
            f" {rate_text(surge_fps)} frames/s, too: one route is enough."
        )
        return
    yield (
        f"For {rate_text(fps)} frames/s mapping {normal.number} has the least latency"
        f" ({_told(normal)}); for a surge of {rate_text(surge_fps)} take mapping {surge.number}"
        f" ({_told(surge)}): build with --mapping {normal.file} --surge {surge.file}."
    )


def _told(candidate: Candidate) -> str:
    figures = candidate.best_known
    return f"{digits(1e3 * figures.latency_s)} ms, {rate_text(figures.throughput_fps)} frames/s"
