"""The results of runs of mappings, in a file: no mapping has to run twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.runtime.job.strict import plain
from rankslice.exploration.results.candidates import Candidate
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.mapping import MappingEntry
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.reading.records import read_record
from rankslice.measurement.summary import RunSummary


@dataclass(frozen=True, slots=True)
class _Line:
    model: str
    platform: str
    mapping: tuple[MappingEntry, ...]
    run: RunSummary


class RunCache:
    """The results of runs of a model's mappings on a platform."""

    def __init__(self, file: Path, model: str, platform: str) -> None:
        """Read what is there; lines that were not written to their end are left out.

        Args:
            file: a line for each run, in JSON; it need not exist.
            model: what tells this model from others: its hash.
            platform: what tells these boards from others.

        Raises:
            RankSliceError: the file is there and cannot be read.
        """
        self._file, self._model, self._platform = file, model, platform
        text = read_text(file, "a record of runs") if file.exists() else ""
        self._at_line_start = text == "" or text.endswith("\n")
        lines = [line for row in text.splitlines() if (line := _read(row, file.name))]
        self._runs = {
            line.mapping: line.run
            for line in lines
            if (line.model, line.platform) == (model, platform)
        }

    def find(self, candidate: Candidate, frames: int | None) -> RunSummary | None:
        """Return what a run of a mapping showed, if there was one.

        Args:
            candidate: the mapping.
            frames: how many it must have had; ``None``: any number.
        """
        run = self._runs.get(_entries(candidate))
        return run if run is not None and frames in (None, run.frames) else None

    def add(self, candidate: Candidate, run: RunSummary) -> None:
        """Keep what a run of a mapping showed.

        Raises:
            OSError: it cannot be written.
        """
        entries = _entries(candidate)
        self._runs[entries] = run
        line = json.dumps(plain(_Line, _Line(self._model, self._platform, entries, run)))
        with self._file.open("a", encoding="ascii") as file:
            file.write(line + "\n" if self._at_line_start else f"\n{line}\n")
        self._at_line_start = True


def _entries(candidate: Candidate) -> tuple[MappingEntry, ...]:
    return tuple(MappingEntry(load.entry, load.layers) for load in candidate.ranks)


def _read(text: str, place: str) -> _Line | None:
    try:
        line = read_record(_Line, read_json(text, place, "expected a run"), place)
    except RankSliceError:
        return None
    is_whole = line.run.throughput_fps and 0 < len(line.run.ranks) == len(line.mapping)
    return line if is_whole else None
