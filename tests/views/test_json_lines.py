"""Results as lines of JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankslice_process, succeed
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.keeper import Entered
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.errors import RankSliceError
from rankslice.views.json_lines import JsonLines


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("float32", np.array([[0.5, np.nan], [np.inf, -2]], np.float32), [[0.5, None], [None, -2]]),
        ("float16", np.array(1.5, np.float16), 1.5),
        ("bfloat16", np.array([0x3FC0, 0x7F80], np.uint16), [1.5, None]),
        ("int64", np.array([2**62], np.int64), [2**62]),
        ("bool", np.array([True, False]), [True, False]),
        ("complex64", np.array([1 + 2j], np.complex64), [[1, 2]]),
        ("float32", np.empty((0, 4), np.float32), []),
    ],
)
def test_values_are_nested_lists_and_what_is_not_finite_is_null(
    tmp_path: Path, dtype: str, values: NDArray[Any], expected: Any
) -> None:
    target = tmp_path / "r.jsonl"
    lines = JsonLines(target, [Tensor("ÿ", dtype, values.shape)], "photo {}".format)
    lines.write(0, [values])
    lines.close()
    assert {"frame": 0, "input": "photo 0", "outputs": {"ÿ": expected}} == json.loads(
        target.read_text()
    )


def test_a_line_is_in_the_file_once_it_is_written_and_older_ones_until_then(tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    target.write_text('{"frame": 0}\n')
    lines = JsonLines(target, [Tensor("y", "float32", ())], lambda frame: None)
    assert '{"frame": 0}\n' == target.read_text()
    for frame in range(3):
        lines.write(frame, [np.zeros((), np.float32)])
        written = [json.loads(line) for line in target.read_text().splitlines()]
        assert list(range(frame + 1)) == [line["frame"] for line in written]
    lines.close()


def test_lines_say_which_arrival_a_frame_was_and_when_if_that_is_told(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "r.jsonl", [], str, has_arrivals=True)
    for frame, arrival in enumerate((0, 3, 7)):
        lines.entered.put(Entered(frame, arrival, 1e9 + arrival, f"{arrival}.png"))
    lines.entered.put(None)
    for frame in (0, 2, 3, 4):  # frame 1 has failed; the source is lost after frame 2
        lines.write(frame, [])
    written = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    last = {"frame": 2, "input": "7.png", "arrival": 7, "arrived_s": 1e9 + 7, "outputs": {}}
    assert last == written[1]
    assert [(3, None), (4, None)] == [(line["frame"], line["input"]) for line in written[2:]]


@pytest.mark.parametrize(
    "line",
    [
        *(b"7", b"[1]", b"null", b'[0, 0, "1", "a"]', b'[0, 0, NaN, "a"]'),
        *(b'[0, true, 1.0, "a"]', b"[0, 0, 1.0, null]", b'[0, 0, 1.0, "a", 1]'),
    ],
)
def test_what_is_told_of_a_frame_is_checked(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a frame that entered"):
        Entered.of_line(line)


@pytest.mark.ci
def test_with_drop_each_line_names_its_arrival(built: Path, tmp_path: Path) -> None:
    options = ("--fps", "200000", "--queue", "2", "--overflow", "drop", "--window", "2")
    target = tmp_path / "r.jsonl"
    began_s = time.time()
    ended = rankslice_process(*("run", built, "--frames", "2000", *options, "--output", target))
    assert 0 == ended.code, ended.err
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    arrivals = [line["arrival"] for line in lines]
    ranks = json.loads((built / "report.json").read_text())["ranks"]
    (dropped,) = (rank["source"]["dropped"] for rank in ranks if rank["source"])
    assert dropped
    assert sorted({*range(2000)} - {*dropped}) == arrivals
    assert [f"random {arrival}" for arrival in arrivals] == [line["input"] for line in lines]
    times = [line["arrived_s"] for line in lines]
    assert times == sorted(times)
    assert began_s < times[0] <= times[-1] < time.time()


def test_without_results_the_file_is_empty(tmp_path: Path) -> None:
    JsonLines(tmp_path / "r.jsonl", [], str).close()
    assert "" == (tmp_path / "r.jsonl").read_text()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to("elsewhere"), "Too many levels of symbolic links"),
    ],
    ids=["folder", "link"],
)
def test_what_has_come_in_place_of_the_file_is_not_written(
    tmp_path: Path, make: Any, problem: str
) -> None:
    make(tmp_path / "r.jsonl")
    with pytest.raises(RankSliceError, match=f"r.jsonl: cannot be written: {problem}"):
        JsonLines(tmp_path / "r.jsonl", [], str).close()


@pytest.mark.ci
def test_standard_output_has_a_line_for_each_frame_and_nothing_else(built: Path) -> None:
    ended = rankslice_process("run", built, "--frames", "12", "--output", "-", "--top", "2")
    assert (0, "") == (ended.code, ended.err)
    lines = [json.loads(line) for line in ended.out.splitlines()]
    expected = read_results(built / "results.bin").values(0)
    assert list(range(12)) == [line["frame"] for line in lines]
    assert "random 11" == lines[-1]["input"]
    values = np.array([line["outputs"]["y"] for line in lines], np.float32)
    np.testing.assert_array_equal(expected, values)
    best = [line["classes"][0]["class"] for line in lines]
    assert expected.reshape(12, -1).argmax(axis=1).tolist() == best


@pytest.mark.ci
def test_an_npz_is_written_as_by_results(built: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.npz"
    succeed("run", built, "--frames", "3", "--output", target)
    with np.load(target) as archive:
        assert (3, 1, 4, 4, 4) == archive["y"].shape
