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
from rankslice.measurement.run_file import RunRecord, read_run
from rankslice.session.bench.bench import compare
from rankslice.session.build_folder import BENCH, BENCH_PAGE, REPORT, RUN, read_plan
from rankslice.views.page import page_html
from rankslice.views.report_page import report_page
from rankslice.views.side_by_side import KeptBench, KeptRun, differences, figures

FORMAT = "rankslice-report"
VERSION = 1
_PAGES = {"trace.html": "Timeline", BENCH_PAGE: "Benchmark"}
"""Pages of other commands in a build folder."""


@dataclass(frozen=True, slots=True)
class Report:
    """The last runs of build folders, and benchmarks."""

    runs: tuple[KeptRun, ...]
    benches: tuple[KeptBench, ...] = ()
    """Of those folders that have one, and of files."""

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
                {"name": each.name, "values": list(each.values), "ratios": list(each.ratios)}
                for each in figures(self.runs)
            ],
            "benchmarks": [
                {
                    "name": kept.name,
                    "ratios": list(map(ratio_json, kept.ratios)),
                    "notes": list(kept.notes),
                }
                for kept in self.benches
            ],
        }

    def to_html(self) -> str:
        """Return the page."""
        return page_html(report_page(self.runs, self.benches))


def make_report(targets: Sequence[Path], page_folder: Path = Path()) -> Report:
    """Return the last runs of build folders, and benchmarks; ratios are to the first.

    Args:
        targets: folders made by ``build``, and run; files that ``bench`` wrote.
        page_folder: where the page goes, for links to other pages.

    Raises:
        RankSliceError: a folder is no build folder or was not run, a file is no benchmark or cannot
            be compared with the first one, or something is given twice.
    """
    raise_mistakes(_twice(targets))
    runs = tuple(_kept_run(path, page_folder) for path in targets if not _is_bench(path))
    return Report(runs, tuple(_kept_benches(targets)))


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
    """Yield benchmarks: of files, and of folders that have one, with a reason where one is useless.

    Raises:
        RankSliceError: a file is no benchmark, or cannot be compared with the first one.
    """
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
    from rankslice.session.run_record import record_of, report_sha256

    report = report_sha256(folder)
    if (folder / RUN).is_file():
        record = read_run(folder / RUN)
        if record.job_sha256 != plan.job.sha256:
            found = "is of another job than the driver's"
            raise RankSliceError(Mistake(str(folder / RUN), found, "run it again"))
        if record.report_sha256 == report:
            return record
    if not report:
        found = "has no report of a completed run"
        raise RankSliceError(Mistake(str(folder), found, f"run it with: rankslice run {folder}"))
    from rankslice.measurement.rank_report import read_report
    from rankslice.measurement.summary import summarise

    records = read_report(folder / REPORT, plan, 0)
    return record_of(folder, plan, summarise(records, None))
