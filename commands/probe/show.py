"""What boards were found to have, and what keeps jobs from running, printed for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rankslice.backend.boards.probed import BoardReport, Cluster, Probed
from rankslice.backend.boards.usable_accelerators import accelerators_of
from rankslice.framework.engines import ENGINES
from rankslice.framework.specs.core_lists import core_ranges
from rankslice.framework.wording import digits, on_one_line
from rankslice.session.probing.check_platform import FAIL, OK, WARN, Finding
from rankslice.session.probing.platform_file import measured_pairs
from rankslice.views.content import Table
from rankslice.views.terminal import MAX_LINE, show

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


def print_probed(probed: Probed, console: Console) -> None:
    rows = []
    for board in probed.boards:
        report = board.report
        usable = {one.unit: dict(one.spec) for one in accelerators_of(report).usable}
        units = [usable.get(unit, {}).get("engine", "-") for unit in ("gpu", "npu")]
        cells = [board.name, board.host, report.model or "-", report.arch, _cores(report.clusters)]
        rows.append((*cells, f"{report.memory_mb} MB", *units, _engines(report)))
    head = ("board", "host", "model", "arch", "cores", "memory", "gpu", "npu", "engines")
    routes = Table("", ("from", "to", "Mbit/s", "ms"), tuple(_route_rows(probed)))
    show(console, Table("", head, tuple(rows)), routes, max_cell=MAX_LINE)


def _cores(clusters: Sequence[Cluster]) -> str:
    return ", ".join(
        core_ranges(cluster.cores) + (f" ({cluster.most_mhz} MHz)" if cluster.most_mhz else "")
        for cluster in clusters
    )


def _engines(report: BoardReport) -> str:
    names = [
        f"{name} {version}".strip()
        for name, version in report.environment.packages
        if any(name in engine.packages for engine in ENGINES.values())
    ]
    return ", ".join(names) or "-"


def _route_rows(probed: Probed) -> Iterator[tuple[str, ...]]:
    for pair in measured_pairs(probed.routes):
        for route in (pair.there, pair.back):
            figures = (digits(route.bits_per_s / 1e6, 4), digits(route.latency_us / 1e3))
            cells = (route.complaint, "-") if route.complaint else figures
            yield (route.source, route.target, *cells)


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    table = RichTable("board", "check", "", "found", "what to do")
    for finding in findings:
        colour = _COLOURS[finding.state]
        cells = [escape(on_one_line(text)) for text in (finding.place, finding.check)]
        texts = [escape(on_one_line(text)) for text in (finding.found, finding.remedy)]
        table.add_row(*cells, f"[{colour}]{finding.state}[/{colour}]", *texts)
    console.print(table)
