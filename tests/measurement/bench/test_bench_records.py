"""The file of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks_made import MS, bench, start, subject

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.bench_records import bench_record, read_bench, write_bench


def made() -> Any:
    starts = [start([MS, 2 * MS]), start([MS, 3 * MS], subject=1)]
    return bench(starts, (subject("a"), subject("b")))


def test_a_benchmark_comes_back_as_it_was(tmp_path: Path) -> None:
    write_bench(made(), tmp_path / "b.json")
    assert made() == read_bench(tmp_path / "b.json")


Change = Callable[[dict[str, Any]], object]

CHANGES: dict[str, Change] = {
    "is a benchmark? this is not a benchmark": lambda record: record.update(format="other"),
    "version 9": lambda record: record.update(version=9),
    "there is no field 'more'": lambda record: record.update(more=1),
    "the field 'seed' is missing": lambda record: record.pop("seed"),
    "expected a whole number": lambda record: record["starts"][0]["latency_ns"].append(1.5),
    "one arrival and one latency": lambda record: record["starts"][0]["latency_ns"].append(1),
    "of each of its frames": lambda record: record["starts"][0].update(
        latency_ns=[1], arrived_ns=[1]
    ),
    "a job or load that does not exist": lambda record: record["starts"][0].update(subject=7),
    "a latency of 0": lambda record: record["starts"][0].update(latency_ns=[0, 1]),
    "a time of a hundred years": lambda record: record["starts"][0].update(arrived_ns=[0, 1 << 62]),
    "nothing was measured": lambda record: record.update(starts=[]),
    "a time that is below 0": lambda record: record["starts"][0].update(latency_ns=[-1, 1]),
    "a stage of a rank": lambda record: record["starts"][0]["stages"][0].update(rank=1),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, message: str) -> None:
    record = json.loads(json.dumps(bench_record(made())))
    CHANGES[message](record)
    file = tmp_path / "b.json"
    file.write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match=message.rpartition("? ")[2]):
        read_bench(file)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "rankslice-benchmark"}'])
def test_what_is_no_benchmark_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(RankSliceError):
        read_bench(tmp_path / "b.json")
