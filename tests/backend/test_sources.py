"""Random frames, .npz files and folders of images."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import TensorSpec
from rankslice.backend.runtime.sources import open_source

X = TensorSpec("x", "float32", (1, 2))
SCALAR = TensorSpec("x", "int64", ())
PICTURE = TensorSpec("x", "float32", (1, 3, 4, 4))


def frame(given: list[str], specs: list[TensorSpec], index: int, **options: Any) -> list[Any]:
    source = open_source(given, specs, **options)
    slots: list[NDArray[Any]] = [np.empty(spec.storage[1], spec.storage[0]) for spec in specs]
    source.read(index, slots)
    source.close()
    return slots


def message(given: list[str], specs: list[TensorSpec]) -> str:
    with pytest.raises(JobError) as error:
        open_source(given, specs)
    return str(error.value)


def npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "frames.npz", **arrays)
    return str(folder / "frames.npz")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool", "uint64"])
def test_a_random_frame_depends_on_seed_and_number_alone(dtype: str) -> None:
    spec = TensorSpec("x", dtype, (50, 2))
    first, again = (frame(["random"], [spec], 3, seed=7)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != frame(["random"], [spec], 4, seed=7)[0]).any()
    assert (first != frame(["random"], [spec], 3, seed=8)[0]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_random_floats_have_mean_0_and_variance_1(dtype: str) -> None:
    values = frame(["random"], [TensorSpec("x", dtype, (100, 100))], 0)[0].astype(np.float64)
    assert 0 == pytest.approx(values.mean(), abs=0.05)
    assert 1 == pytest.approx(values.var(), abs=0.05)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
def test_random_integers_are_0_or_1(dtype: str) -> None:
    assert {0, 1} == set(frame(["random"], [TensorSpec("x", dtype, (99,))], 0)[0].tolist())


def test_random_bfloat16_values_have_mean_0_and_variance_1() -> None:
    (held,) = frame(["random"], [TensorSpec("x", "bfloat16", (100, 100))], 0)
    values = (held.astype(np.uint32) << 16).view(np.float32)
    assert abs(values.mean()) < 0.05
    assert abs(values.var() - 1) < 0.05


def test_inputs_of_one_frame_differ_from_each_other() -> None:
    one, other = frame(["random"], [X, TensorSpec("z", "float32", (1, 2))], 0)
    assert (one != other).any()


def test_random_frames_are_100_unless_told_otherwise() -> None:
    assert [100, 100, 0, 7] == [
        open_source(["random"], [X]).frames,
        open_source([], [X]).frames,
        open_source(["random"], [X], frames=0).frames,
        open_source(["random"], [X], frames=7).frames,
    ]


def test_an_npz_file_holds_one_frame_or_a_stack_of_them(tmp_path: Path) -> None:
    one = npz(tmp_path, x=np.array([[1, 2]], np.float32))
    assert 1 == open_source([one], [X]).frames
    np.testing.assert_array_equal([[1, 2]], frame([one], [X], 0)[0])
    stack = npz(tmp_path, x=np.arange(6, dtype=np.float32).reshape(3, 1, 2))
    assert 3 == open_source([stack], [X]).frames
    np.testing.assert_array_equal([[4, 5]], frame([stack], [X], 2)[0])


def test_a_stack_may_leave_out_a_batch_size_of_one(tmp_path: Path) -> None:
    stack = npz(tmp_path, x=np.arange(6, dtype=np.float32).reshape(3, 2))
    np.testing.assert_array_equal([[4, 5]], frame([stack], [X], 2)[0])


def test_a_stack_of_scalars_has_a_frame_per_value(tmp_path: Path) -> None:
    stack = npz(tmp_path, x=np.array([7, 8, 9]))
    assert 9 == frame([stack], [SCALAR], 2)[0]
    assert 5 == frame([npz(tmp_path, x=np.array(5))], [SCALAR], 0)[0]


def test_frames_beyond_the_last_begin_again_at_the_first(tmp_path: Path) -> None:
    stack = npz(tmp_path, x=np.array([7, 8, 9]))
    source = open_source([stack], [SCALAR], frames=5)
    assert 5 == source.frames
    assert 7 == frame([stack], [SCALAR], 3)[0]
    assert ["frames.npz[2]", "frames.npz[0]"] == [source.label(2), source.label(3)]


def test_arrays_that_the_model_does_not_take_are_left_alone(tmp_path: Path) -> None:
    stack = npz(tmp_path, x=np.array([7]), other=np.zeros(3))
    assert 1 == open_source([stack], [SCALAR]).frames


def test_a_missing_array_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    path = npz(tmp_path, z=np.zeros(1), y=np.zeros(1))
    assert f"{path}: has no array 'x'; it has ['y', 'z']" == message([path], [X])


def test_an_array_of_another_type_is_told(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros((1, 2)))
    assert f"{path}: 'x' is float64; the model takes float32" == message([path], [X])


def test_an_array_of_another_shape_is_told(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros((3, 5), np.float32))
    expected = f"{path}: 'x' has shape [3, 5]; expected [1, 2] or a stack [N, 1, 2]"
    assert expected == message([path], [X])


def test_arrays_of_different_lengths_are_told(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros(3, np.int64), z=np.zeros(2, np.int64))
    expected = f"{path}: its arrays hold [2, 3] frames; one number > 0 needed"
    assert expected == message([path], [SCALAR, TensorSpec("z", "int64", ())])


def test_a_stack_without_frames_is_told(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros((0, 1, 2), np.float32))
    assert f"{path}: its arrays hold [0] frames; one number > 0 needed" == message([path], [X])


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


def empty(path: Path) -> None:
    path.touch()


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    "make",
    [corrupt_deflate, with_huge_head, with_objects, single_array, cut_short, empty, folder],
    ids=lambda make: make.__name__,
)
def test_a_file_that_is_no_archive_of_plain_arrays_is_told(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "frames.npz")
    expected = r"frames\.npz: is no \.npz file of plain arrays"
    with pytest.raises(JobError, match=expected):
        open_source([str(tmp_path / "frames.npz")], [X])


def test_a_member_that_is_no_array_does_not_fit_the_model(tmp_path: Path) -> None:
    with_text(tmp_path / "frames.npz")
    assert "the model takes float32" in message([str(tmp_path / "frames.npz")], [X])


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
    given = [str(tmp_path / name) for name in ("b.png", "folder", "a.png")]
    source = open_source(given, [PICTURE], frames=4)
    assert ["b.png", "x.png", "a.png", "b.png"] == [source.label(n) for n in range(source.frames)]


def test_an_image_file_may_have_any_name(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (255, 255, 255)).save(tmp_path / "i.png")
    (tmp_path / "i.png").rename(tmp_path / "photo")
    values = frame([str(tmp_path / "photo")], [PICTURE], 0)[0]
    np.testing.assert_array_equal(np.ones((1, 3, 4, 4), np.float32), values)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    assert f"{tmp_path}/x: no such file or folder" == message([f"{tmp_path}/x"], [X])


def test_a_folder_without_images_is_told(tmp_path: Path) -> None:
    assert "--input: no image found; expected files that end in" in message(
        [str(tmp_path)], [PICTURE]
    )


def test_an_npz_file_stands_alone(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros(1))
    assert "--input: an .npz file must be the only input" == message([path, path], [X])


def test_images_feed_one_input_only(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "i.png")
    expected = "--input: images feed models of one input; this one has 2"
    assert expected == message([str(tmp_path / "i.png")], [PICTURE, PICTURE])


def test_a_model_input_that_takes_no_image_is_told_before_the_first_frame(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "i.png")
    expected = "model input 'x' of shape [1, 2] takes no image in layout nchw"
    assert message([str(tmp_path / "i.png")], [X]).startswith(expected)
