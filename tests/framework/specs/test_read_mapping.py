from pathlib import Path

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.specs.read_mapping import read_mapping


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


def test_a_syntax_error_has_line_and_column(tmp_path: Path) -> None:
    expected = "mapping.json: line 2, column 10: found '\"'; expected a comma or a closing bracket"
    assert [expected] == mistakes_of(tmp_path, '{"a_gpu":\n  ["fc1" "fc2"]}')


def test_a_key_that_stands_there_twice_is_a_mistake(tmp_path: Path) -> None:
    assert [
        "mapping.json: a_gpu: the key appears 2 times;"
        " expected every key once; put its layers into one list"
    ] == mistakes_of(tmp_path, '{"a_gpu": ["fc1"], "b_gpu": [], "a_gpu": ["fc2"]}')


def test_values_must_be_lists_of_strings_and_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = '{"a_cpu0": "conv", "a_cpu1": ["fc", 3, null], "a_cpu2": {"fc": 1}, "a_cpu3": [[]]}'
    assert [
        "mapping.json: a_cpu0: found 'conv'; expected a list of layer names",
        "mapping.json: a_cpu1[1]: found 3; expected the name of a layer",
        "mapping.json: a_cpu1[2]: found nothing; expected the name of a layer",
        "mapping.json: a_cpu2: found an object; expected a list of layer names",
        "mapping.json: a_cpu3[0]: found an empty list; expected the name of a layer",
    ] == mistakes_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{}", "the mapping is empty"),
        ("[]", "the file holds an empty list"),
        ('"local"', "the file holds 'local'"),
        ("null", "the file holds nothing"),
        ("true", "the file holds true"),
        ("[" * 100_000, "brackets are nested too deeply"),
        ("1" * 5000, "a number is too long"),
    ],
)
def test_what_is_no_mapping_at_all_is_named(tmp_path: Path, text: str, found: str) -> None:
    shape = 'expected an object such as {"edge01_cpu0-3": ["conv1", "conv2..pool5"]}'
    assert [f"mapping.json: {found}; {shape}"] == mistakes_of(tmp_path, text)


def test_names_that_cannot_be_printed_are_escaped_and_long_ones_shortened(tmp_path: Path) -> None:
    text = '{"a\\n\\ud800_gpu": 1, "%s": 2}' % ("b" * 500)
    assert [
        "mapping.json: 'a\\n\\ud800_gpu': found 1; expected a list of layer names",
        f"mapping.json: {'b' * 77}...: found 2; expected a list of layer names",
    ] == mistakes_of(tmp_path, text)


def test_a_file_that_is_no_text_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    path.write_bytes(b"{\xff")
    with pytest.raises(RankSliceError) as caught:
        read_mapping(path)
    expected = "mapping.json: byte 1 is not UTF-8 text; expected a mapping file in UTF-8"
    assert expected == str(caught.value)


def test_a_file_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(RankSliceError) as caught:
        read_mapping(Path("no/such.json"))
    assert "no/such.json: no such file; expected a mapping file" == str(caught.value)
