"""Times of arrivals in a file, as a rank reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.sources.arrival_times import max_in_a_second, read_arrival_times


def test_a_trace_has_a_time_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("# a camera\n0\n0.5  # the second frame\n\n  0.5\n1e1\n")
    assert [0.0, 0.5, 0.5, 10.0] == read_arrival_times(path)


def test_a_trace_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("# nothing comes\n")
    assert [] == read_arrival_times(path)


@pytest.mark.parametrize("line", ["x", "nan", "inf", "-1", "0.5 s", "0.5,0.6", "0.25", "0x1"])
def test_a_line_that_is_no_later_time_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(f"# times\n0.5\n{line}\n1.0\n")
    with pytest.raises(JobError) as error:
        read_arrival_times(path)
    fault = "0.25 comes after 0.5" if line == "0.25" else f"{line!r} is not a time"
    assert f"{path}, line 3: {fault}" == str(error.value)


def test_a_trace_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobError) as error:
        read_arrival_times(tmp_path / "trace.txt")
    assert f"{tmp_path}/trace.txt: No such file or directory" == str(error.value)
    (tmp_path / "trace.bin").write_bytes(b"\xff\xfe0\n")
    with pytest.raises(JobError) as error:
        read_arrival_times(tmp_path / "trace.bin")
    assert f"{tmp_path}/trace.bin: not a text" == str(error.value)


@pytest.mark.parametrize(
    ("times_s", "most"),
    [([], 0), ([5.0], 1), ([0.0, 0.5, 1.0], 2), ([0.0, 0.5, 0.9, 1.4, 1.45], 4), ([1.0] * 7, 7)],
)
def test_the_most_arrivals_in_a_second_are_counted(times_s: list[float], most: int) -> None:
    assert most == max_in_a_second(times_s)
