import json
from pathlib import Path

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import LayerPart, LayerSplit, Mapping, MappingEntry
from rankslice.framework.specs.read_mapping import mapping_of, read_horizontal, read_mapping


def read(folder: Path, text: str) -> Mapping:
    path = folder / "mapping.json"
    path.write_text(text, encoding="utf-8")
    return read_mapping(path)


def mistakes_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(RankSliceError) as caught:
        read(folder, text)
    return str(caught.value).splitlines()


def test_ranks_are_the_keys_in_the_order_of_the_file(tmp_path: Path) -> None:
    entries = (MappingEntry("b_cpu1", ("conv",)), MappingEntry("a_gpu", ("fc", "relu..add")))
    text = '{"b_cpu1": ["conv"], "a_gpu": ["fc", "relu..add"]}'
    assert Mapping("mapping.json", entries) == read(tmp_path, text)


def test_keys_of_ranks_that_take_turns_are_taken_as_they_are_written(tmp_path: Path) -> None:
    entries = (MappingEntry("b_gpu*3|a_cpu0,2", ("conv",)), MappingEntry("a_gpu*x||", ("fc",)))
    text = '{"b_gpu*3|a_cpu0,2": ["conv"], "a_gpu*x||": ["fc"]}'
    assert Mapping("mapping.json", entries) == read(tmp_path, text)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert read(tmp_path, '{"a_gpu": ["fc"]}') == read(tmp_path, '\ufeff{"a_gpu": ["fc"]}')


def test_names_that_cannot_be_printed_are_escaped_and_long_ones_shortened(tmp_path: Path) -> None:
    text = '{"a\\n\\ud800_gpu": 1, "%s": 2}' % ("b" * 500)
    assert [
        "mapping.json: 'a\\n\\ud800_gpu': found 1; expected a list of layer names",
        f"mapping.json: {'b' * 77}...: found 2; expected a list of layer names",
    ] == mistakes_of(tmp_path, text)


PART = {"layers": ("conv1..pool5",), "by": "rows", "share": 2, "halo": "exchange"}


def test_a_part_of_layers_is_read_from_a_file_and_from_a_dictionary(tmp_path: Path) -> None:
    part = LayerPart(("conv1..pool5",), "rows", 2, "exchange")
    entries = (MappingEntry("a_cpu0", ("conv0", part)),)
    text = json.dumps({"a_cpu0": ["conv0", PART]})
    assert entries == read(tmp_path, text).entries
    assert entries == mapping_of({"a_cpu0": ("conv0", PART)}).entries


def test_a_part_is_an_equal_one_unless_it_says_more(tmp_path: Path) -> None:
    text = '{"a_cpu0": [{"layers": ["fc6"], "by": "outputs"}]}'
    assert (LayerPart(("fc6",), "outputs", 1, "recompute"),) == read(tmp_path, text).entries[
        0
    ].layers


def test_all_mistakes_in_parts_are_listed_with_their_places(tmp_path: Path) -> None:
    parts = [
        {},
        {"layers": ["a"], "by": "row", "halo": "x"},
        {"layers": [], "by": "rows", "share": 0, "shares": 1},
        {"layers": ["a", 3], "by": 3, "share": True},
        {"layers": "a", "by": "rows", "share": 1e999},
    ]
    text = json.dumps({"a_cpu0": ["b", *parts], "a_gpu": [1]}).replace("Infinity", "1e999")
    layers = 'a list of layers and ranges, such as ["conv1..pool5"]'
    ways = "rows, columns, outputs, inputs or heads"
    at = "mapping.json: a_cpu0"
    assert [
        f"{at}[1]: 'layers' is missing; expected {layers}",
        f"{at}[1]: 'by' is missing; expected {ways}",
        f"{at}[2].by: found 'row'; did you mean 'rows'?",
        f"{at}[2].halo: found 'x'; expected recompute or exchange",
        f"{at}[3].layers: found an empty list; expected {layers}",
        f"{at}[3].share: found 0; expected a number above 0, and up to a million, such as 2",
        f"{at}[3]: unknown key 'shares'; did you mean 'share'?",
        f"{at}[4].layers[1]: found 3; expected {layers}",
        f"{at}[4].by: found 3; expected {ways}",
        f"{at}[4].share: found true; expected a number above 0, and up to a million, such as 2",
        f"{at}[5].layers: found 'a'; expected {layers}",
        f"{at}[5].share: found inf; expected a number above 0, and up to a million, such as 2",
        "mapping.json: a_gpu[0]: found 1; expected the name of a layer",
    ] == mistakes_of(tmp_path, text)


def test_a_key_of_a_part_that_appears_twice_is_a_mistake(tmp_path: Path) -> None:
    text = '{"a_cpu0": [{"layers": ["a"], "by": "rows", "by": "columns"}]}'
    expected = "mapping.json: a_cpu0[0].by: the key appears 2 times; expected every key once"
    assert [expected] == mistakes_of(tmp_path, text)


def splits(folder: Path, text: str) -> tuple[LayerSplit, ...]:
    path = folder / "horizontal.json"
    path.write_text(text)
    return read_horizontal(path)


@pytest.mark.parametrize(
    ("way", "by", "sizes", "parts"),
    [
        ("lop", "outputs", [48, 65535], (48, 65487)),
        ("lip", "inputs", [3, 3000], (3, 3000)),
        ("height", "rows", [3, 4, 3000], (3, 4, 3000)),
        ("width", "columns", [3, 3000], (3, 3000)),
    ],
)
def test_autodices_sizes_are_ends_of_outputs_and_sizes_of_the_rest(
    tmp_path: Path, way: str, by: str, sizes: list[int], parts: tuple[int, ...]
) -> None:
    keys = ("nx01", "nx02_gpu", "nx03")[: len(parts)]
    expected = LayerSplit("horizontal.json: conv1", "conv1", by, parts, keys)
    assert (expected,) == splits(tmp_path, json.dumps({"conv1": [way, sizes, keys]}))


def test_all_mistakes_in_autodices_splits_are_listed(tmp_path: Path) -> None:
    text = """{
        "a": ["lp", [1, 2], ["k0", "k1"]], "b": ["lop", [0, true], ["k0", 3]], "c": ["lip", [1, 2]],
        "d": {"lop": 1}
    }"""
    keys = "expected a list of two or more keys of the mapping"
    with pytest.raises(RankSliceError) as caught:
        splits(tmp_path, text)
    assert [
        "horizontal.json: a[0]: found 'lp'; did you mean 'lop'?",
        "horizontal.json: b[1][0]: found 0; expected a list of two or more sizes from 1",
        "horizontal.json: b[1][1]: found true; expected a list of two or more sizes from 1",
        f"horizontal.json: b[2][1]: found 3; {keys}",
        f"horizontal.json: c[2]: is missing; {keys}",
        "horizontal.json: d: found an object;"
        ' expected {"conv2_1": ["lop", [48, 96], ["edge01_cpu0", "edge02_cpu0"]]}',
    ] == str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('{"a": ["lop", [9, 9], ["k0", "k1"]]}', "a[1]: the sizes of lop are 9 and 9"),
        ('{"a": ["lip", [9, 9, 9], ["k0", "k1"]]}', "a: 3 sizes and 2 keys"),
        ('{"a": ["lip", [9, 9], ["k0", "k0"]]}', "a[2]: a key appears twice"),
        ('{"a": ["lip", [9, 9], ["k0", "k1"]], "a": 3}', "a: the key appears 2 times"),
        ("{}", "the file splits no layer"),
        ("[]", "found an empty list"),
    ],
)
def test_splits_that_contradict_themselves_are_refused(
    tmp_path: Path, text: str, mistake: str
) -> None:
    with pytest.raises(RankSliceError) as caught:
        splits(tmp_path, text)
    assert str(caught.value).startswith(f"horizontal.json: {mistake}")
