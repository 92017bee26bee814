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


def test_names_that_cannot_be_printed_are_escaped_and_long_ones_shortened(tmp_path: Path) -> None:
    text = '{"a\\n\\ud800_gpu": 1, "%s": 2}' % ("b" * 500)
    assert [
        "mapping.json: 'a\\n\\ud800_gpu': found 1; expected a list of layer names",
        f"mapping.json: {'b' * 77}...: found 2; expected a list of layer names",
    ] == mistakes_of(tmp_path, text)
