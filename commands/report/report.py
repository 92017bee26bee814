"""``rankslice report``: runs of build folders and benchmarks, side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rankslice.commands.bench.show import ratio_json
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.plan import Plan
from rankslice.measurement.bench.bench_records import Bench, read_bench
from rankslice.measurement.bench.intervals import check_installed
from rankslice.measurement.rank_report import read_report
from rankslice.measurement.summary import RunRecord, read_run, summarise
from rankslice.measurement.trace.traced_operators import read_operators_csv, records_of
from rankslice.session.bench.bench import compare
from rankslice.session.build_folder import BENCH, BENCH_PAGE, REPORT, RUN, read_plan
from rankslice.session.run_record import record_of, report_sha256
from rankslice.views.content import Notice, Part
from rankslice.views.page import page_html
from rankslice.views.report_page import report_page
from rankslice.views.side_by_side import (
    KeptBench,
    KeptOperators,
    KeptRun,
    benches_table,
    differences,
    figure_table,
    figures,
    operators_table,
)

FORMAT = "rankslice-report"
VERSION = 1
_TABLE = ".csv"
_PAGES = {"trace.html": "Timeline", BENCH_PAGE: "Benchmark"}
"""Pages of other commands in a build folder."""


@dataclass(frozen=True, slots=True)
class Report:
    """The last runs of build folders, and benchmarks."""

    runs: tuple[KeptRun, ...]
    benches: tuple[KeptBench, ...] = ()
    """Of those folders that have one, and of files."""
    operators: tuple[KeptOperators, ...] = ()

    @property
    def differences(self) -> list[str]:
        """In what the runs differ besides the mapping: then they are not comparable."""
        return differences(self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values, for ``report --json``."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "runs": [run.name for run in self.runs],
            "differences": self.differences,
            "figures": [
                {"name": row.name, "values": list(row.values), "ratios": list(row.ratios)}
                for row in figures(self.runs)
            ],
            "benchmarks": [
                {
                    "name": kept.name,
                    "ratios": list(map(ratio_json, kept.ratios)),
                    "notes": list(kept.notes),
                }
                for kept in self.benches
            ],
            "operators": [
                {"name": kept.name, "operators": records_of(kept.rows)} for kept in self.operators
            ],
        }

    @property
    def parts(self) -> Iterator[Part]:
        """What the terminal shows."""
        if self.runs:
            yield figure_table(self.runs)
        if any(kept.ratios for kept in self.benches):
            yield benches_table(self.benches)
            notes = tuple(f"{kept.name}: {note}" for kept in self.benches for note in kept.notes)
            yield Notice("Notes", notes, "note")
        if self.operators:
            yield operators_table(self.operators)

    def to_html(self) -> str:
        """Return the page."""
        return page_html(report_page(self.runs, self.benches, self.operators))


def make_report(targets: Sequence[Path], page_folder: Path = Path()) -> Report:
    """Return ``rankslice.report`` of folders and files, for a page in a folder."""
    raise_mistakes(_twice(targets))
    tables = [path for path in targets if path.suffix.lower() == _TABLE and not path.is_dir()]
    others = [path for path in targets if path not in tables]
    runs = tuple(_kept_run(path, page_folder) for path in others if not _is_bench(path))
    operators = tuple(KeptOperators(str(path), read_operators_csv(path)) for path in tables)
    return Report(runs, tuple(_kept_benches(others)), operators)


def _twice(targets: Sequence[Path]) -> Iterator[Mistake]:
    seen: set[str] = set()
    for path in targets:
        if (real := os.path.realpath(path)) in seen:
            yield Mistake(str(path), "is given twice", "leave one out")
        seen.add(real)


def _kept_run(folder: Path, page_folder: Path) -> KeptRun:
    plan = read_plan(folder)
    pages = tuple(
        (what, quote(os.path.relpath(folder / name, page_folder)))
        for name, what in _PAGES.items()
        if (folder / name).is_file()
    )
    return KeptRun(str(folder), _record(folder, plan), plan, pages)


def _is_bench(path: Path) -> bool:
    return path.is_file() or (path.suffix == ".json" and not path.is_dir())


def _kept_benches(targets: Sequence[Path]) -> Iterator[KeptBench]:
    """Yield benchmarks of files and of folders; a folder's may lack ratios, for a reason."""
    first: Bench | None = None
    for path in targets:
        file = path if _is_bench(path) else path / BENCH
        if not (_is_bench(path) or file.is_file()):
            continue
        bench, compared = None, None
        try:
            bench = read_bench(file)
            check_installed()
            compared = compare(bench, first) if first is not None else None
        except RankSliceError as error:
            if file == path:
                raise
            yield KeptBench(str(path), bench, notes=tuple(map(str, error.mistakes)))
            continue
        first = first or bench
        ratios, notes = (compared.ratios, compared.notes) if compared else ((), ())
        yield KeptBench(str(path), bench, ratios, notes)


def _record(folder: Path, plan: Plan) -> RunRecord:
    """Return the record of a folder's last run.

    A report that is newer than the record is of a job that ``run`` did not start.
    """
    report = report_sha256(folder)
    if (folder / RUN).is_file():
        record = read_run(folder / RUN)
        if record.job_sha256 != plan.job.sha256:
            problem = "is of another job than the driver's"
            raise RankSliceError(Mistake(str(folder / RUN), problem, "run it again"))
        if record.report_sha256 == report:
            return record
    if not report:
        problem = "has no report of a completed run"
        raise RankSliceError(Mistake(str(folder), problem, f"run it with: rankslice run {folder}"))
    records = read_report(folder / REPORT, plan, 0)
    return record_of(folder, plan, summarise(records, None))
