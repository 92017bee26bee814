"""The results file."""

from __future__ import annotations

import json
import math
import resource
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.sinks.results import Results, max_bytes, read_results
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter

DTYPES = [
    *("float32", "float64", "float16", "bfloat16", "float8e4m3fn", "complex64", "bool"),
    *("int8", "uint8", "int16", "int32", "int64", "uint64", "int4", "uint4"),
]

outputs = st.lists(
    st.tuples(
        st.text(max_size=5), st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)
    ),
    min_size=1,
    max_size=3,
).map(lambda items: [Tensor(name, dtype, tuple(shape)) for name, dtype, shape in items])

SCALAR = Tensor("y", "float32", ())


def write(path: Path, specs: list[Tensor], frames: int) -> list[list[bytes]]:
    """Write frames of random bytes; return them, per frame and output."""
    random = np.random.default_rng(frames)
    writer = ResultsWriter(path, "f" * 64, specs)
    rings = [Ring(spec, 1, 1) for spec in specs]
    written = []
    for frame in range(frames):
        for ring in rings:
            ring.raw[0][...] = random.integers(0, 2, ring.raw[0].size, np.uint8)
        writer.write(frame, [ring.slots[0] for ring in rings])
        written.append([ring.slots[0].tobytes() for ring in rings])
    writer.close()
    return written


@given(outputs, st.integers(0, 4))
def test_what_was_written_is_read(specs: list[Tensor], frames: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.bin")
        written = write(path, specs, frames)
        results = read_results(path)
        assert tuple(specs) == results.outputs
        assert "f" * 64 == results.job_sha256
        assert list(range(frames)) == results.records["frame"].tolist()
        assert written == [
            [results.values(number)[frame].tobytes() for number in range(len(specs))]
            for frame in range(frames)
        ]
        for number, spec in enumerate(specs):
            assert (frames, *spec.storage[1]) == results.values(number).shape
            assert spec.storage[0] == results.values(number).dtype


@st.composite
def open_frames(draw: st.DrawFn) -> tuple[list[Tensor], list[list[NDArray[Any]]]]:
    """Outputs, one of which is open at least, and frames of them."""
    dtypes = st.sampled_from(["float32", "float16", "bfloat16", "int64", "bool", "float8e4m3fn"])
    axes = st.tuples(st.integers(0, 4), st.sampled_from(["", "?", "boxes"]))
    specs = []
    for name, dtype, shape in draw(
        st.lists(st.tuples(st.text(max_size=3), dtypes, st.lists(axes, max_size=3)), max_size=3)
    ):
        symbols = tuple(symbol for _, symbol in shape)
        specs.append(Tensor(name, dtype, tuple(size for size, _ in shape), symbols))
    specs.insert(draw(st.integers(0, len(specs))), Tensor("open", "int8", (5,), ("?",)))
    frames = []
    for number in range(draw(st.integers(0, 4))):
        frame = []
        for spec in specs:
            axes_of = zip(spec.shape, spec.symbols, strict=True)
            shape = tuple(draw(st.integers(0, n)) if symbol else n for n, symbol in axes_of)
            values = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape) + number
            frame.append(values.astype(spec.storage[0]))
        frames.append(frame)
    return specs, frames


def write_frames(path: Path, specs: list[Tensor], frames: list[list[NDArray[Any]]]) -> None:
    writer = ResultsWriter(path, "f" * 64, specs)
    for number, values in enumerate(frames):
        writer.write(number, values)
    writer.close()


def assert_has(results: Results, frames: list[list[NDArray[Any]]]) -> None:
    assert list(range(len(frames))) == results.records["frame"].tolist()
    for number, spec in enumerate(results.outputs):
        read = results.frames(number)
        expected = [frame[number] for frame in frames]
        assert [values.shape for values in expected] == results.shapes(number)
        assert len(expected) == len(read)
        assert len(expected[:2]) == len(read[:2])
        for one, other in zip(expected, read, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            assert one.tobytes() == other.tobytes()
        if not spec.is_open:
            assert (len(frames), *spec.shape) == results.values(number).shape
            assert spec.storage[0] == results.values(number).dtype


@given(open_frames(), st.data())
def test_frames_of_any_shapes_are_read_and_those_cut_short_left_out(
    written: tuple[list[Tensor], list[list[NDArray[Any]]]], data: st.DataObject
) -> None:
    specs, frames = written
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.bin")
        write_frames(path, specs, [])
        ends = [path.stat().st_size]
        for count in range(1, len(frames) + 1):
            write_frames(path, specs, frames[:count])
            ends.append(path.stat().st_size)
        results = read_results(path)
        assert tuple(specs) == results.outputs
        assert_has(results, frames)
        assert ends[-1] <= max_bytes(specs, len(frames))
        cut = data.draw(st.integers(ends[0], ends[-1]))
        path.write_bytes(path.read_bytes()[:cut])
        whole = sum(end <= cut for end in ends[1:])
        assert_has(read_results(path), frames[:whole])


def test_only_the_values_that_are_there_take_room(tmp_path: Path) -> None:
    boxes = Tensor("boxes", "float32", (1000, 4), ("?", ""))
    write_frames(tmp_path / "r", [boxes], [[np.ones((rows, 4), np.float32)] for rows in (0, 3)])
    head = (tmp_path / "r").read_bytes().index(b"]}\n") + 3
    assert 2 * (16 + 8) + 3 * 16 == (tmp_path / "r").stat().st_size - head


def test_an_open_output_has_no_single_array(tmp_path: Path) -> None:
    boxes = Tensor("boxes", "float32", (9, 4), ("?", ""))
    write_frames(tmp_path / "r", [boxes, SCALAR], [])
    with pytest.raises(JobError, match="output 'boxes' has open sizes"):
        read_results(tmp_path / "r").values(0)
    assert (0,) == read_results(tmp_path / "r").values(1).shape


def test_a_shape_beyond_the_bound_is_no_record_and_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "r"
    write_frames(path, [Tensor("boxes", "float32", (9, 4), ("?", ""))], [])
    good = path.read_bytes()
    for sizes, reason in (((2**32 - 1, 4), "beyond its bound"), ((3, 2**32 - 1), "expected 4")):
        path.write_bytes(good + struct.pack("<Qd2I", 0, 1.5, *sizes))
        with pytest.raises(
            JobError, match=f"r: not a results file .frame 0 is invalid: .*{reason}"
        ):
            read_results(path)


def test_every_frame_is_in_the_file_before_the_next_one_comes(tmp_path: Path) -> None:
    writer = ResultsWriter(tmp_path / "r", "f", [SCALAR])
    for frame in range(3):
        times = read_results(tmp_path / "r").completed_s
        assert frame == len(times)
        assert sorted(times) == times.tolist()
        writer.write(frame, [np.float32(frame).reshape(())])
    writer.close()


@pytest.mark.parametrize("cut", [1, 10, 19])
def test_a_file_that_was_cut_short_keeps_its_whole_frames(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r"
    write(path, [SCALAR], 3)
    path.write_bytes(path.read_bytes()[:-cut])
    assert [0, 1] == read_results(path).records["frame"].tolist()


HEAD = b"rankslice results 2\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"P6 4 4 255",
        HEAD,
        HEAD + b"{",
        HEAD + b"[]\n",
        HEAD + b"{}\n",
        HEAD + b'{"outputs": []}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32"]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", 3]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [-3]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", ",float32", [3]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1e999]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [4611686018427387904, 8]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [99999999999999999999]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", 5, [1]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "int4", ["a"]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": 5}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1, 2], ["?"]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1], ["?", ""]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [-1], ["?"]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1e3], ["?"]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1], [5]]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1], 5]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [1], ["?"], 5]]}\n',
        HEAD + b'{"job_sha256": "f", "outputs": [["y", "float32", [9999999999], ["?"]]]}\n',
        HEAD + b"\xff\n",
        HEAD + b"[" * 100_000,
    ],
)
def test_another_file_is_not_a_results_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(JobError, match="r: not a results file"):
        read_results(tmp_path / "r")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (None, "r: No such file or directory"),
        ({"outputs": []}, r"r: not a results file \(there is no 'job_sha256'\)"),
        (
            {"job_sha256": "f", "outputs": [["y", "object", [1]]]},
            "tensor 'y': values of type 'object' have no fixed size",
        ),
    ],
)
def test_what_a_results_file_lacks_is_told(tmp_path: Path, head: Any, reason: str) -> None:
    if head is not None:
        (tmp_path / "r").write_bytes(HEAD + json.dumps(head).encode() + b"\n")
    with pytest.raises(JobError, match=reason):
        read_results(tmp_path / "r")


def test_a_disk_that_gets_full_is_told_and_the_file_can_still_be_closed(tmp_path: Path) -> None:
    writer = ResultsWriter(tmp_path / "r", "f", [SCALAR])
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "r").stat().st_size + 5, usual[1]))
    try:
        with pytest.raises(JobError, match=r"results file .*r: File too large"):
            writer.write(0, [np.zeros((), np.float32)])
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert 0 == len(read_results(tmp_path / "r"))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere/r", "No such file or directory"),
        ("/dev/full", "No space left on device; make"),
    ],
)
def test_a_file_that_cannot_be_made_is_named(path: str, reason: str) -> None:
    with pytest.raises(JobError, match=f"results file {path}: {reason}"):
        ResultsWriter(Path(path), "f", [SCALAR])
