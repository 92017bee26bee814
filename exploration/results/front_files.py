"""What an exploration found, as it stands in ``front.json`` and ``front.csv``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rankslice.exploration.objectives import columns
from rankslice.exploration.results.candidates import Candidate, Exploration, Figures, RankLoad
from rankslice.framework.files.output_file import csv_lines
from rankslice.framework.mapping import MappingEntry

FORMAT = "rankslice-front"
VERSION = 1


def exploration_to_json(exploration: Exploration) -> dict[str, Any]:
    record = asdict(replace(exploration, candidates=(), scaling=()))
    del record["candidates"], record["scaling"]
    return {
        "format": FORMAT,
        "version": VERSION,
        **record,
        "routes": dict(zip(("normal", "surge"), exploration.routes, strict=False)) or None,
        "mappings": [_candidate(candidate) for candidate in exploration.candidates],
        "scaling": [
            {"number_of_boards": point.boards, **_candidate(point.candidate)}
            for point in exploration.scaling
        ],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "number": candidate.number,
        "file": candidate.file,
        "on_front": candidate.on_front,
        "boards": list(candidate.boards),
        "bottleneck": candidate.bottleneck,
        "figures": [_figures(candidate, figures) for figures in candidate.figures],
        "ranks": [_load(load) for load in candidate.ranks],
        "channels": [
            {
                "source": traffic.sender,
                "destination": traffic.receiver,
                "bytes": traffic.nbytes,
                "ms": 1e3 * traffic.seconds,
            }
            for traffic in candidate.traffic
        ],
    }


def _figures(candidate: Candidate, figures: Figures) -> dict[str, Any]:
    record: dict[str, Any] = {"source": figures.basis}
    for row in columns():
        value = row.value(candidate, figures)
        record[row.json.name] = None if value is None else row.json.convert(value)
        if row.basis:
            record[f"{row.name}_source"] = row.basis(figures)
    return record


def _load(load: RankLoad) -> dict[str, Any]:
    return {
        "key": load.key,
        "frames": str(load.turns),
        "board": load.board,
        "layers": [*MappingEntry(load.entry, load.layers).in_json()],
        "layer_count": load.layer_count,
        "compute_ms": 1e3 * load.compute_s,
        "busy_ms": 1e3 * load.busy_s,
        "measured_ms": None if load.measured_s is None else 1e3 * load.measured_s,
        "gpu_bytes": load.gpu_bytes,
    }


def candidates_csv(candidates: Sequence[Candidate]) -> str:
    """Return a table with a line for each mapping and basis of its figures."""
    rows = [_cells(candidate, figures) for candidate in candidates for figures in candidate.figures]
    return "".join(csv_lines([rows[0], *(row.values() for row in rows)]))


def _cells(candidate: Candidate, figures: Figures) -> dict[str, object]:
    return {
        "mapping": candidate.number,
        "file": candidate.file,
        "on_front": "yes" if candidate.on_front else "no",
        "source": figures.basis,
        **dict(_figure_cells(candidate, figures)),
        "boards": len(candidate.boards),
        "ranks": len(candidate.ranks),
        "accelerators": "+".join(candidate.accelerators),
        "bottleneck": candidate.bottleneck,
    }


def _figure_cells(candidate: Candidate, figures: Figures) -> Iterator[tuple[str, str]]:
    for row in columns():
        value = row.value(candidate, figures)
        yield row.csv.name, "" if value is None else f"{row.csv.convert(value):.4g}"
        if row.basis:
            yield f"{row.name}_source", row.basis(figures) or ""
