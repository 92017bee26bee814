"""Frames of different sizes for models that leave sizes open."""

from __future__ import annotations

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
from rankslice.backend.runtime.sources import Source, numpy_files, open_source

IDS = Tensor("ids", "int64", (1, 8), ("", "seq"))
MASK = Tensor("mask", "int64", (1, 8), ("", "seq"))
BATCH = Tensor("x", "float32", (4, 2), ("batch", ""))
POINTS = Tensor("p", "float32", (5, 3), ("?", "?"))
PHOTO = Tensor("x", "float32", (1, 3, 8, 12), ("batch", "", "height", "width"))
LINE = Tensor("x", "float32", (1, 1, 4, 12), ("", "", "", "width"))


def opened(name: str, *specs: Tensor, **options: Any) -> Source:
    return open_source(RunOptions((name,), **options), specs)


def frames(source: Source, *specs: Tensor) -> list[list[NDArray[Any]]]:
    """Return all frames, read backwards, as each must be readable at any time."""
    slots = [make_slot(spec) for spec in specs]
    read: list[list[NDArray[Any]]] = []
    for index in reversed(range(source.frames or 0)):
        source.read(index, slots)
        read.insert(0, [values_in(slot).copy() for slot in slots])
    source.close()
    return read


def message(name: str, *specs: Tensor, **options: Any) -> str:
    with pytest.raises(JobError) as error:
        opened(name, *specs, **options)
    return str(error.value)


def npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "f.npz", **arrays)
    return str(folder / "f.npz")


def test_random_sizes_reach_from_1_to_the_bound_and_are_shared_by_name() -> None:
    specs = (IDS, MASK, POINTS, BATCH)
    drawn = frames(opened("random", *specs, frames=200), *specs)
    assert {*range(1, 9)} == {ids.shape[1] for ids, *_ in drawn}
    assert all(ids.shape == mask.shape for ids, mask, *_ in drawn)
    assert {(rows, columns) for rows in range(1, 6) for columns in range(1, 4)} == {
        points.shape for _, _, points, _ in drawn
    }
    again = frames(opened("random", *specs, frames=200), *specs)
    assert all(map(np.array_equal, [v for f in drawn for v in f], [v for f in again for v in f]))


def test_an_npz_file_may_have_an_array_for_each_frame(tmp_path: Path) -> None:
    arrays = {f"{name}/{n}": np.full((1, n % 9), n) for name in ("ids", "mask") for n in range(11)}
    source = opened(npz(tmp_path, **arrays), IDS, MASK)
    assert 11 == source.frames
    for n, frame in enumerate(frames(source, IDS, MASK)):
        for values in frame:
            np.testing.assert_array_equal(np.full((1, n % 9), n), values)


@pytest.mark.parametrize("kind", ["npz", "npy", "large npy", "fortran"])
def test_a_batch_beyond_the_bound_is_cut_into_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "large npy":
        monkeypatch.setattr(numpy_files, "_MAX_LENT_BYTES", 0)
    values = np.arange(20, dtype=np.float32).reshape(10, 2)
    path = tmp_path / f"f.{'npz' if kind == 'npz' else 'npy'}"
    if kind == "npz":
        npz(tmp_path, x=values)
    else:
        np.save(path, np.asfortranarray(values) if kind == "fortran" else values)
    source = opened(str(path), BATCH)
    assert "more rows than its bound: it is cut into 3 frames of 4 rows, the last one of 2" in (
        source.note()
    )
    parts = [one for (one,) in frames(source, BATCH)]
    assert [4, 4, 2] == [len(one) for one in parts]
    np.testing.assert_array_equal(values, np.concatenate(parts))


@pytest.mark.parametrize(
    ("spec", "shape", "expected"),
    [
        (BATCH, (3, 2), [(3, 2)]),
        (BATCH, (7, 3, 2), [(3, 2)] * 7),
        (IDS, (1, 5), [(1, 5)]),
        (IDS, (6, 5), [(1, 5)] * 6),
        (IDS, (6, 1, 5), [(1, 5)] * 6),
        (POINTS, (0, 3), [(0, 3)]),
    ],
)
def test_the_number_of_dimensions_tells_frames_from_stacks(
    tmp_path: Path, spec: Tensor, shape: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    file = npz(tmp_path, **{spec.name: np.zeros(shape, spec.dtype)})
    assert expected == [one.shape for (one,) in frames(opened(file, spec), spec)]


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"ids/0": (1, 9)}, "of shape [1, 9] is beyond its bound [1, 8]"),
        ({"ids": (2, 9)}, "of shape [1, 9] is beyond its bound [1, 8]"),
        ({"ids/0": (3, 1, 5)}, "'ids/0' has shape [3, 1, 5]; expected [1, seq<=8]"),
        ({"ids": (5,)}, "'ids' has shape [5]; expected [1, seq<=8] or a stack [N, 1, seq<=8]"),
        ({"ids/0": (1, 5), "ids/2": (1, 5)}, "has 2 arrays 'ids/N', but none 'ids/1'"),
        ({"ids": (1, 5), "ids/0": (1, 5)}, "has an array 'ids' and arrays for its frames"),
        ({"idx": (1, 5)}, "has no array 'ids'; it has ['idx']"),
    ],
)
def test_arrays_that_do_not_fit_are_told(
    tmp_path: Path, arrays: dict[str, tuple[int, ...]], expected: str
) -> None:
    file = npz(tmp_path, **{name: np.zeros(shape, np.int64) for name, shape in arrays.items()})
    assert expected in message(file, IDS)


def test_inputs_that_disagree_on_a_size_are_told_with_the_frame(tmp_path: Path) -> None:
    arrays = {f"{name}/{n}": np.zeros((1, 5), np.int64) for name in ("ids", "mask") for n in (0, 1)}
    arrays["mask/1"] = np.zeros((1, 4), np.int64)
    file = npz(tmp_path, **arrays)
    expected = "f.npz: frame 1: size 'seq' is 5 in 'ids' and 4 in 'mask'"
    assert message(file, IDS, MASK).endswith(expected)


def image(folder: Path, height: int, width: int) -> str:
    path = folder / f"{height}x{width}.png"
    Image.new("RGB", (width, height), (255, 255, 255)).save(path)
    return str(path)


@pytest.mark.parametrize(
    ("spec", "size", "expected"),
    [
        (PHOTO, (5, 7), (1, 3, 5, 7)),
        (PHOTO, (16, 12), (1, 3, 8, 6)),
        (PHOTO, (100, 1), (1, 3, 8, 1)),
        (LINE, (8, 16), (1, 1, 4, 8)),
        (LINE, (2, 3), (1, 1, 4, 6)),
        (LINE, (4, 100), (1, 1, 4, 12)),
    ],
)
def test_images_are_scaled_only_as_far_as_the_model_needs(
    tmp_path: Path, spec: Tensor, size: tuple[int, int], expected: tuple[int, ...]
) -> None:
    source = opened(image(tmp_path, *size), spec)
    ((values,),) = frames(source, spec)
    np.testing.assert_array_equal(np.ones(expected, np.float32), values)
    assert (size == tuple(expected[2:])) == (not source.note())


def test_images_that_must_keep_their_sizes_are_refused_before_the_start(tmp_path: Path) -> None:
    keep = Preprocessing(keep_size=True)
    fits, too_large = image(tmp_path, 8, 12), image(tmp_path, 9, 10)
    ((values,),) = frames(opened(fits, PHOTO, preprocessing=keep), PHOTO)
    assert (1, 3, 8, 12) == values.shape
    assert (
        "9x10.png has 9x10 pixels; the bound of model input 'x' is 8x12: resize images (--size), or"
        " build with a larger one (--at-most x=1,3,9,12)"
    ) == message(too_large, PHOTO, preprocessing=keep)
    assert "height and width not both open" in message(fits, LINE, preprocessing=keep)


def test_size_names_the_size_of_frames_where_the_model_leaves_it_open(tmp_path: Path) -> None:
    photo = image(tmp_path, 20, 20)
    six = Preprocessing(size=(6, 10))
    assert (1, 3, 6, 10) == frames(opened(photo, PHOTO, preprocessing=six), PHOTO)[0][0].shape
    assert (1, 1, 4, 10) == frames(opened(photo, LINE, preprocessing=six), LINE)[0][0].shape
    expected = "--size gives images of 9x10 pixels; the bound of model input 'x' is 8x12: build"
    assert expected in message(photo, PHOTO, preprocessing=Preprocessing(size=(9, 10)))


BERT = [
    Tensor("input_ids", "int64", (1, 8), ("batch", "seq")),
    Tensor("attention_mask", "float32", (1, 8), ("batch", "seq")),
    Tensor("serving_default_token_type_ids:0", "int32", (8,), ("seq",)),
    Tensor("position_ids", "int64", (1, 8), ("", "seq")),
]


def text(folder: Path, content: str | bytes, name: str = "texts.txt") -> str:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(folder / name)


def test_a_line_of_tokens_feeds_all_inputs_of_a_text_model(tmp_path: Path) -> None:
    source = opened(text(tmp_path, "101 7 102\n1\r\n 5\t6 "), *BERT)
    assert ["texts.txt:1", "texts.txt:3", "texts.txt:1"] == [source.label(n) for n in (0, 2, 3)]
    read = frames(source, *BERT)
    assert [
        [[[101, 7, 102]], [[1, 1, 1]], [0, 0, 0], [[0, 1, 2]]],
        [[[1]], [[1]], [0], [[0]]],
        [[[5, 6]], [[1, 1]], [0, 0], [[0, 1]]],
    ] == [[values.tolist() for values in frame] for frame in read]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "texts.txt: is empty; expected a frame per line"),
        ("1 2\n\n3", "texts.txt: line 2 is empty; expected whole numbers"),
        ("1 2\n3 four", "line 2 is '3 four'; expected whole numbers with spaces between them"),
        ("1 -2", "line 1 is '1 -2'; expected whole numbers"),
        ("1 99999999999999999999", "line 1 has 99999999999999999999; int64 ends at 9223372036854"),
        ("1\n" + "1 " * 9, "line 2: tensor 'input_ids' of shape [1, 9] is beyond its bound [1, 8]"),
        ("1" * 9999, "line 1 has more than 1192 bytes"),
        (b"\xff\xfe1", "line 1 is '\ufffd\ufffd1'; expected whole numbers"),
    ],
)
def test_a_bad_line_of_tokens_is_told_by_its_number(
    tmp_path: Path, content: str | bytes, expected: str
) -> None:
    assert expected in message(text(tmp_path, content), *BERT)


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([PHOTO], "feeds models with one input of token numbers, such as input_ids; this one has"),
        ([IDS, MASK], "this one has ['ids', 'mask']: give an .npz or .jsonl file"),
        ([BERT[0], PHOTO], "a .txt file has no values for model input 'x'"),
        ([Tensor("ids", "int64", (2, 8), ("", "seq"))], "of shape [2, 8] takes no tokens"),
    ],
)
def test_tokens_are_refused_by_models_that_take_more(
    tmp_path: Path, specs: list[Tensor], expected: str
) -> None:
    assert expected in message(text(tmp_path, "1"), *specs)


def test_a_line_of_json_has_lists_for_each_input(tmp_path: Path) -> None:
    lines = '{"ids": [[1, 2]], "mask": [1, 1], "text": "a"}\n{"ids": [], "mask": [[]]}\n'
    read = frames(opened(text(tmp_path, lines, "f.jsonl"), IDS, MASK), IDS, MASK)
    assert [[[[1, 2]], [[1, 1]]], [[[]], [[]]]] == [[v.tolist() for v in f] for f in read]
    numbers = text(tmp_path, '{"p": [[1, 2.5], [NaN, -1e99]]}', "f.jsonl")
    ((points,),) = frames(opened(numbers, POINTS), POINTS)
    np.testing.assert_array_equal(np.array([[1, 2.5], [np.nan, -np.inf]], np.float32), points)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[1]", "is not a JSON object; expected an object with 'ids', 'mask'"),
        ("[" * 9999, "is not a JSON object"),
        ('{"ids": [1]}', "has no values for 'mask'"),
        (
            '{"ids": [1], "mask": [1], "kinds": [[0]]}',
            ": has values for 'kinds', and the model's inputs are 'ids', 'mask': leave them out; if"
            " the model's file has a default for this input, build with --shape NAME=SIZES",
        ),
        ('{"ids": [1], "mask": [1], "least": 0.5}', ": has values for 'least'"),
        ('{"ids": [1], "mask": [1, 1]}', "size 'seq' is 1 in 'ids' and 2 in 'mask'"),
        ('{"ids": [1.5], "mask": [1]}', "'ids' is not int64 numbers in lists of equal lengths"),
        ('{"ids": ["1"], "mask": [1]}', "'ids' is not int64 numbers in lists of equal lengths"),
        ('{"ids": [[1], 2], "mask": [1]}', "'ids' is not int64 numbers in lists of equal lengths"),
        ('{"ids": [[1], [2, 3]], "mask": [1]}', "'ids' is not int64 numbers in lists of equal"),
        ('{"ids": [1e999], "mask": [1]}', "'ids' is not int64 numbers in lists of equal lengths"),
        ('{"ids": [%s], "mask": [1]}' % ("9" * 4000), "'ids' is not int64 numbers in lists of"),
        ('{"ids": [9223372036854775808], "mask": [1]}', "'ids' has values beyond int64"),
        ('{"ids": [[[1]]], "mask": [1]}', "of shape [1, 1, 1] has 3 dimensions, not 2"),
        ('{"ids": [1,1,1,1,1,1,1,1,1], "mask": [1]}', "is beyond its bound [1, 8]"),
    ],
)
def test_a_bad_line_of_json_is_told_by_its_number(tmp_path: Path, line: str, expected: str) -> None:
    refusal = message(text(tmp_path, f'{{"ids": [1], "mask": [1]}}\n{line}', "f.jsonl"), IDS, MASK)
    assert "f.jsonl: line 2" in refusal
    assert expected in refusal


@pytest.mark.parametrize("depth", [300, 600, 980, 5000])
def test_lists_in_many_lists_are_refused(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(f'{{"ids": {"[" * depth}1{"]" * depth}, "mask": [1]}}\n')
    assert f"{path}: line 1" in message(str(path), IDS, MASK)
