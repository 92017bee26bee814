"""What is kept of the last run of a build folder, as one record and one file, ``run.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.runtime.job.strict import PAIRS, plain
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.reading.records import read_document
from rankslice.measurement.summary import RunSummary

FORMAT = "rankslice-run"
VERSION = 3
_MAX_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that came to its end."""

    ended: str
    """UTC; empty: unknown."""
    model: str
    model_sha256: str
    job_sha256: str
    report_sha256: str
    """Of the ranks' report of the same run."""
    command: tuple[str, ...]
    """What was typed; empty: a program called."""
    versions: PAIRS
    """Of programs and packages on the machine that started the run."""
    conditions: PAIRS
    """Under which runs can be compared: where frames came from, how many, at which rate. Empty:
    unknown."""
    summary: RunSummary
    verify: str
    """The verdict in words; empty: results were not compared."""
    notes: tuple[str, ...]


def run_text(record: RunRecord) -> str:
    content = plain(RunRecord, record)
    content["summary"]["verify"] = None
    return json.dumps({"format": FORMAT, "version": VERSION, **content}) + "\n"


def read_run(path: Path) -> RunRecord:
    """Return what :func:`run_text` wrote, after checking it.

    Raises:
        RankSliceError: the file cannot be read, is none of a run, or contradicts itself.
    """
    text = read_text(path, "a run's", _MAX_BYTES)
    return read_document(
        RunRecord, text, str(path), "run", VERSION, "rankslice run", "run it again"
    )
