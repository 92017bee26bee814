"""Random frames, .npz files and folders of images."""

from __future__ import annotations

import io
import os
import resource
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.backend.runtime.sources import Source, numpy_files, open_source as open_source_of
from rankslice.backend.runtime.sources.arrivals import Pulled

X = Tensor("x", "float32", (1, 2))
SCALAR = Tensor("x", "int64", ())
PICTURE = Tensor("x", "float32", (1, 3, 4, 4))


def open_source(names: list[str], specs: list[Tensor], **options: Any) -> Source:
    return open_source_of(RunOptions(tuple(names), **options), specs)


def frame(names: list[str], specs: list[Tensor], index: int, **options: Any) -> list[Any]:
    source = open_source(names, specs, **options)
    slots: list[NDArray[Any]] = [np.empty(spec.storage[1], spec.storage[0]) for spec in specs]
    source.read(index, slots)
    source.close()
    return slots


def message(names: list[str], specs: list[Tensor]) -> str:
    with pytest.raises(JobError) as error:
        open_source(names, specs)
    return str(error.value)


def npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "frames.npz", **arrays)
    return str(folder / "frames.npz")


def npy(path: Path, array: NDArray[Any]) -> str:
    np.save(path, array)
    return str(path)


STACK = np.arange(24, dtype=np.float32).reshape(12, 1, 2)


@pytest.mark.parametrize("shape", [(1, 2), (1, 2**20), (1, 2**22)])
def test_random_frames_come_from_a_pool_that_was_drawn_before(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    spec, count = Tensor("x", "float32", shape), {2: 1024, 2**20: 8}.get(shape[1], 0)
    source, slot = open_source(["random"], [spec], frames=3000), np.empty(shape, np.float32)
    source.start(Pulled(3000))
    drawn: list[int] = []
    draw = source._draw  # type: ignore[attr-defined]
    monkeypatch.setattr(source, "_draw", lambda n, s: (drawn.append(n), draw(n, s)))
    for index in (0, 7, 8, 1024, 2999):
        source.read(index, [slot])
        # The launcher's own source, which verifies, has no pool.
        np.testing.assert_array_equal(frame(["random"], [spec], index)[0], slot)
        if count:
            np.testing.assert_array_equal(frame(["random"], [spec], index % count)[0], slot)
    assert drawn == ([] if count else [0, 7, 8, 1024, 2999])


def test_the_pool_holds_no_more_than_the_frames_of_the_run_and_33_mb() -> None:
    for shape, frames, expected in (((1, 2), 5, 5), ((1, 2), None, 1024), ((1, 2**20), 100, 8)):
        unlimited = {"unlimited": True} if frames is None else {"frames": frames}
        source = open_source(["random"], [Tensor("x", "float32", shape)], **unlimited)
        source.start(Pulled(frames))
        pool = source._pool  # type: ignore[attr-defined]
        assert expected == len(pool)
        assert sum(values.nbytes for parts in pool for values in parts) <= 1 << 25


def test_open_sizes_of_the_pool_are_those_that_are_drawn() -> None:
    spec = Tensor("x", "float32", (1, 9), ("", "n"))
    source, slot = open_source(["random"], [spec], frames=20), make_slot(spec)
    source.start(Pulled(20))
    for index in range(20):
        source.read(index, [slot])
        pooled = values_in(slot).copy()
        open_source(["random"], [spec]).read(index, [slot])
        np.testing.assert_array_equal(pooled, values_in(slot), strict=True)


WIDE = Tensor("x", "float32", (1, 16))


def wide(folder: Path, kind: str) -> str:
    """Return an input with five frames that begin at multiples of 64 bytes."""
    values = np.arange(80, dtype=np.float32).reshape(5, 1, 16)
    if kind == "npz":
        return npz(folder, x=values)
    np.save(folder / "frames.npy", values)
    return str(folder / "frames.npy") if kind == "npy" else "random"


@pytest.mark.parametrize("kind", ["npz", "npy", "random"])
def test_frames_are_lent_where_they_lie(tmp_path: Path, kind: str) -> None:
    source, slot = open_source([wide(tmp_path, kind)], [WIDE], frames=5), make_slot(WIDE)
    source.start(Pulled(5))
    assert () == source.lent(4)
    (frames,) = source.lent(5)
    for index, values in enumerate(frames):
        source.read(index, [slot])
        np.testing.assert_array_equal(slot, values, strict=True)
        assert (True, 0) == (values.flags.c_contiguous, values.ctypes.data % 64)


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_frames_that_would_not_be_aligned_are_lent_as_copies_if_they_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    file = npz(tmp_path, x=values) if kind == "npz" else npy(tmp_path / "f.npy", values)
    source = open_source([file], [X])
    (frames,) = source.lent(3)
    np.testing.assert_array_equal(values, np.array(frames))
    assert [0, 0, 0] == [frame.ctypes.data % 64 for frame in frames]
    monkeypatch.setattr(numpy_files, "_MAX_LENT_BYTES", 23)
    assert () == source.lent(3)


def test_frames_whose_size_changes_are_not_lent(tmp_path: Path) -> None:
    spec = Tensor("x", "float32", (1, 16), ("", "n"))
    for kind in ("npz", "npy", "random"):
        source = open_source([wide(tmp_path, kind)], [spec], frames=5)
        source.start(Pulled(5))
        assert () == source.lent(64)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool", "uint64"])
def test_a_random_frame_depends_on_seed_and_number_alone(dtype: str) -> None:
    spec = Tensor("x", dtype, (50, 2))
    first, again = (frame(["random"], [spec], 3, seed=7)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != frame(["random"], [spec], 4, seed=7)[0]).any()
    assert (first != frame(["random"], [spec], 3, seed=8)[0]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_random_floats_have_mean_0_and_variance_1(dtype: str) -> None:
    (values,) = frame(["random"], [Tensor("x", dtype, (100, 100))], 0)
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    assert 0 == pytest.approx(values.astype(np.float64).mean(), abs=0.05)
    assert 1 == pytest.approx(values.astype(np.float64).var(), abs=0.05)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
def test_random_integers_are_0_or_1(dtype: str) -> None:
    assert {0, 1} == set(frame(["random"], [Tensor("x", dtype, (99,))], 0)[0].tolist())


def test_inputs_of_one_frame_differ_from_each_other() -> None:
    one, other = frame(["random"], [X, Tensor("z", "float32", (1, 2))], 0)
    assert (one != other).any()


def test_random_frames_are_100_unless_told_otherwise() -> None:
    assert [100, 100, 0, 7] == [
        open_source(["random"], [X]).frames,
        open_source([], [X]).frames,
        open_source(["random"], [X], frames=0).frames,
        open_source(["random"], [X], frames=7).frames,
    ]


SIX = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize(
    ("array", "spec", "frames", "last"),
    [
        (SIX[1:3].reshape(1, 2), X, 1, [[1, 2]]),
        (SIX.reshape(3, 1, 2), X, 3, [[4, 5]]),
        (SIX.reshape(3, 2), X, 3, [[4, 5]]),  # a stack may leave out a batch size of one
        (np.array([7, 8, 9]), SCALAR, 3, 9),
        (np.array(5), SCALAR, 1, 5),
    ],
)
def test_a_file_holds_one_frame_or_a_stack_of_them(
    tmp_path: Path, kind: str, array: NDArray[Any], spec: Tensor, frames: int, last: Any
) -> None:
    file = npz(tmp_path, x=array) if kind == "npz" else npy(tmp_path / "f.npy", array)
    assert frames == open_source([file], [spec]).frames
    np.testing.assert_array_equal(last, frame([file], [spec], frames - 1)[0])


def test_frames_beyond_the_last_begin_again_at_the_first(tmp_path: Path) -> None:
    stack = npz(tmp_path, x=np.array([7, 8, 9]))
    source = open_source([stack], [SCALAR], frames=5)
    assert 5 == source.frames
    assert 7 == frame([stack], [SCALAR], 3)[0]
    assert ["frames.npz[2]", "frames.npz[0]"] == [source.label(2), source.label(3)]


@pytest.mark.parametrize("name", ["other", "other/0", "x/", "x/a", "y/x"])
def test_arrays_that_the_model_does_not_take_are_refused(tmp_path: Path, name: str) -> None:
    stack = npz(tmp_path, **{"x": np.array([7]), name: np.zeros((3, 2))})
    expected = f"{stack}: has values for {name!r}, and the model's inputs are 'x': leave them out"
    assert expected in message([stack], [SCALAR])


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"z": np.zeros(1), "y": np.zeros(1)}, "has no array 'x'; it has ['y', 'z']"),
        ({"x": np.zeros((1, 2))}, "'x' is float64; the model takes float32"),
        (
            {"x": np.zeros((3, 5), np.float32)},
            "'x' has shape [3, 5]; expected [1, 2] or a stack [N, 1, 2]",
        ),
        (
            {"x": np.zeros((0, 1, 2), np.float32)},
            "its arrays hold [0] frames; one number > 0 needed",
        ),
    ],
)
def test_an_array_that_does_not_fit_the_model_input_is_told(
    tmp_path: Path, arrays: dict[str, Any], expected: str
) -> None:
    path = npz(tmp_path, **arrays)
    assert f"{path}: {expected}" == message([path], [X])


def test_arrays_of_different_lengths_are_told(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros(3, np.int64), z=np.zeros(2, np.int64))
    expected = f"{path}: its arrays hold [2, 3] frames; one number > 0 needed"
    assert expected == message([path], [SCALAR, Tensor("z", "int64", ())])


def corrupt_deflate(path: Path) -> None:
    np.savez_compressed(path, x=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[100:200] = bytes(100)
    path.write_bytes(content)


def with_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "no array")


def with_huge_head(path: Path) -> None:
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1000000000000000)}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)


def with_objects(path: Path) -> None:
    np.savez(path, x=np.array([{}, []], dtype=object))


def single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def cut_short(path: Path) -> None:
    np.savez(path, x=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    "make",
    [
        corrupt_deflate,
        with_text,
        with_huge_head,
        with_objects,
        single_array,
        cut_short,
        Path.touch,
        Path.mkdir,
    ],
    ids=lambda make: make.__name__,
)
def test_a_file_that_is_no_archive_of_plain_arrays_is_told(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "frames.npz")
    expected = r"frames\.npz: is not (an \.npz file of plain arrays|a regular file)"
    with pytest.raises(JobError, match=expected):
        open_source([str(tmp_path / "frames.npz")], [X])


def test_a_folder_gives_its_images_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "c.bmp", "d.ppm"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "notes.txt").touch()
    source = open_source([str(tmp_path)], [PICTURE])
    assert ["a.JPG", "b.png", "c.bmp", "d.ppm"] == [source.label(n) for n in range(source.frames)]


def test_files_and_folders_come_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder/x.png", "b.png", "a.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    names = [str(tmp_path / name) for name in ("b.png", "folder", "a.png")]
    source = open_source(names, [PICTURE], frames=4)
    assert ["b.png", "x.png", "a.png", "b.png"] == [source.label(n) for n in range(source.frames)]


def test_an_image_file_may_have_any_name(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (255, 255, 255)).save(tmp_path / "i.png")
    (tmp_path / "i.png").rename(tmp_path / "photo")
    values = frame([str(tmp_path / "photo")], [PICTURE], 0)[0]
    np.testing.assert_array_equal(np.ones((1, 3, 4, 4), np.float32), values)


@pytest.mark.parametrize(
    ("names", "specs", "expected"),
    [
        (["x"], [X], "x: no such file or folder; expected images (.bmp, .jpeg, "),
        (["empty"], [PICTURE], "--input: no image found; expected images (.bmp"),
        (["f.npz"] * 2, [X], "--input: an .npz or an .npy file must be the only input"),
        (["i.png"], [PICTURE] * 2, "--input: i.png feeds models of one input; this one has 2: "),
        (["f.npy"], [X] * 2, "--input: f.npy feeds models of one input; this one has 2: give an"),
        (
            ["i.png"],
            [X],
            "model input 'x' of shape [1, 2] accepts no images in layout nchw or nhwc",
        ),
    ],
)
def test_what_is_no_input_of_a_model_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    specs: list[Tensor],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Image.new("RGB", (4, 4)).save("i.png")
    np.save("f.npy", STACK)
    np.savez("f.npz", x=STACK)
    assert message(names, specs).startswith(expected)


@pytest.mark.parametrize("most_bytes", [0, 1 << 20])
@pytest.mark.parametrize(
    ("array", "frames"),
    [(STACK, 12), (STACK[:, 0], 12), (STACK[3], 1), (np.asfortranarray(STACK[:, 0]), 12)],
)
def test_an_npy_file_is_read_whole_or_frame_by_frame(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    array: NDArray[Any],
    frames: int,
    most_bytes: int,
) -> None:
    monkeypatch.setattr(numpy_files, "_MAX_LENT_BYTES", most_bytes)
    path = npy(tmp_path / "f.npy", array)
    assert frames == open_source([path], [X]).frames
    for index in range(frames):
        expected = array.reshape(frames, 1, 2)[index]
        np.testing.assert_array_equal(expected, frame([path], [X], index)[0])
    assert "f.npy[0]" == open_source([path], [X]).label(frames)


def test_an_npy_file_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = npy(tmp_path / "f.npy", np.zeros((3, 1, 2)))
    assert f"{path}: its array is float64; the model takes float32" == message([path], [X])
    path = npy(tmp_path / "f.npy", np.zeros((3, 5), np.float32))
    expected = f"{path}: its array has shape [3, 5]; expected [1, 2] or a stack [N, 1, 2]"
    assert expected == message([path], [X])
    path = npy(tmp_path / "f.npy", np.zeros((0, 2), np.float32))
    assert "hold [0] frames" in message([path], [X])


def test_an_npy_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    np.save(path, STACK)
    whole = path.read_bytes()
    contents = [b"", b"no array", whole[:20], whole[:-1], whole.replace(b"(12,", b"(1<<60,")]
    contents += [whole.replace(b"(12, 1, 2), ", b"(99999999999, 1, 2), ")]
    for content in contents:
        path.write_bytes(content)
        assert "is not an .npy file of a plain array" in message([str(path)], [X])
    np.save(path, np.array([{}], dtype=object))
    assert f"{path}: its array is object; the model takes float32" == message([str(path)], [X])


def test_a_large_npy_file_that_is_cut_short_meanwhile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_files, "_MAX_LENT_BYTES", 0)
    path = npy(tmp_path / "f.npy", np.zeros((100_000, 2), np.float32))
    source = open_source([path], [X])
    os.truncate(path, 700_000)
    with pytest.raises(JobError, match=r"f\.npy: was truncated in the meantime"):
        source.read(99_999, [np.empty((1, 2), np.float32)])
    source.close()


def head_of(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    head = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()


def lying_zip(path: Path, content: bytes, told_bytes: int) -> str:
    """Write an archive whose directory tells another size of its member."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    data = path.read_bytes()
    sizes = struct.pack("<I", len(content))
    assert 2 == data.count(sizes)
    path.write_bytes(data.replace(sizes, struct.pack("<I", told_bytes)))
    return str(path)


def test_an_npz_that_would_take_gigabytes_is_refused_by_its_header(tmp_path: Path) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    promised = 4_000_000_000
    promise = lying_zip(tmp_path / "promise.npz", head_of((promised // 8, 1, 2)), promised)
    assert "its arrays take 4.0 GB of memory; at most 1.1 GB" in message([promise], [X])
    head = head_of((promised // 8, 1, 2))
    lie = lying_zip(tmp_path / "lie.npz", head + bytes(80), 208)
    assert "is not an .npz file of plain arrays (EOF: reading array data" in message([lie], [X])
    bomb = lying_zip(tmp_path / "bomb.npz", head_of((10, 1, 2)) + bytes(1 << 24), 208)
    assert "is not an .npz file of plain arrays (Bad CRC-32" in message([bomb], [X])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before_kb + 100_000


def test_arrays_that_the_model_does_not_take_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", head_of((1, 2)) + bytes(8))
        archive.writestr("other.npy", b"\x93NUMPY\x01\x00 whatever")
    assert "has values for 'other'" in message([str(path)], [X])


@pytest.mark.parametrize("name", ["f.npz", "f.npy", "f.png", "f", "folder/f.png"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_ordinary_file_is_told_at_once(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    place = path.parent if name.startswith("folder") else path
    refusal = message([str(place)], [PICTURE])
    assert "is not a regular file" in refusal or "cannot be read: No such device" in refusal
    assert name == "f.npz" or name == "f.npy" or "expected images (.bmp" in refusal


def test_a_file_that_is_no_image_is_told_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("notes")
    refusal = message([str(tmp_path / "notes.md")], [PICTURE])
    assert "notes.md: not an image that can be read (cannot identify image file);" in refusal
    assert "expected images (.bmp" in refusal
    assert "object at 0x" not in refusal
    assert "_io." not in refusal


def test_an_image_of_another_size_is_told(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    Image.new("RGB", (6, 5)).save(tmp_path / "b.png")
    note = "b.png has 5x6 pixels, the model takes 4x4: images of other sizes are resized"
    paths = [str(tmp_path / name) for name in ("a.png", "b.png")]
    assert note == open_source(paths, [PICTURE]).note()
    assert "" == open_source(paths[:1], [PICTURE]).note()
    asked = Preprocessing(size=(4, 4))
    assert "" == open_source(paths, [PICTURE], preprocessing=asked).note()
    assert "" == open_source(["random"], [PICTURE]).note()
