"""The figures of a benchmark as texts of tables and lines, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.framework.quantities import frames_text
from rankslice.measurement.bench.figures import Ratio, SeriesFigures
from rankslice.measurement.bench.histogram import PERCENTS
from rankslice.measurement.bench.intervals import Interval, significantly
from rankslice.measurement.bench.records import Bench

SERIES_HEAD = (
    *("job", "load", "frames/s", "mean ms"),
    *(f"p{percent:g}" for percent in PERCENTS),
    "jitter",
)
RATIO_HEAD = ("load", "figure", "", "over", "ratio", "95 %", "")
_FEW = 10
"""So many frames are to lie beyond a percentile."""


def interval_text(found: Interval, digits: int = 2) -> str:
    """Return ``12.34 ± 0.05``; without bounds where there are none."""
    if not found.is_known:
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} ± {(found.high - found.low) / 2:.{digits}f}"


def milliseconds(nanoseconds: float) -> str:
    """Return ``12.34``."""
    return f"{1e-6 * nanoseconds:.2f}"


def series_row(bench: Bench, series: SeriesFigures) -> tuple[str, ...]:
    """Return the row of a job under a load."""
    load, histogram = bench.loads[series.load], series.histogram
    mean = series.mean_ns
    return (
        bench.subjects[series.subject].name,
        load.name,
        interval_text(series.throughput_fps),
        interval_text(Interval(1e-6 * mean.value, 1e-6 * mean.low, 1e-6 * mean.high)),
        *(milliseconds(histogram.percentile_ns(percent)) for percent in PERCENTS),
        milliseconds(histogram.jitter_ns),
    )


def ratio_row(ratio: Ratio) -> tuple[str, ...]:
    """Return the row of a comparison."""
    found = ratio.ratio
    return (
        ratio.load,
        ratio.figure,
        f"{ratio.measured.value:.2f}",
        f"{ratio.reference.value:.2f}",
        f"{found.value:.3f}",
        f"{found.low:.3f} to {found.high:.3f}" if found.is_known else "",
        significantly(found, ratio.more, ratio.less),
    )


def notes_of(bench: Bench, found: Sequence[SeriesFigures]) -> Iterator[str]:
    """Yield what has to be known to read the figures."""
    models = dict.fromkeys((each.model_sha256, each.model) for each in bench.subjects)
    if len(models) > 1:
        yield f"the jobs run different models: {', '.join(name for _, name in models)}"
    for series in found:
        where = f"{bench.subjects[series.subject].name}, {bench.loads[series.load].name}"
        if series.unsettled:
            yield (
                f"{where}: {series.unsettled} of {len(series.starts)} starts never settled; their"
                " second half is counted"
            )
    counts = [series.histogram.count for series in found]
    few = [percent for percent in PERCENTS if min(counts) * (1 - percent / 100) < _FEW]
    if few:
        needed = round(_FEW / (1 - few[0] / 100))
        yield (
            f"p{few[0]:g} needs about {frames_text(needed)}, and there are"
            f" {min(counts)}: it and higher ones are little more than the largest"
        )
    if len(found[0].starts) < 2:
        yield "a single start: there are no intervals"


def advice_texts(bench: Bench, found: Sequence[SeriesFigures]) -> Iterator[str]:
    """Yield where the variance of each mean comes from, and what would reduce it best."""
    for series in found:
        parts, wanted = series.components, series.advice
        if parts is None or wanted is None:
            continue
        frames = len(series.starts[0].latencies_ns)
        share = 100 * parts.starts / (parts.starts + parts.frames / frames) if frames else 0
        yield (
            f"{bench.subjects[series.subject].name}, {bench.loads[series.load].name}: the mean is"
            f" known to ±{100 * series.mean_ns.half_width:.1f} %; {share:.0f} % of its variance"
            f" comes from the starts; ±1 % takes about {wanted.starts} starts of"
            f" {frames_text(wanted.frames)}"
        )
