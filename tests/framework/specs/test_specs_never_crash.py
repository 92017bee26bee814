"""Whatever stands in a spec file, the outcome is a record or a mistake that is told."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from line_graphs import line_graph
from spec_strategies import BYTES, KEYS_OF_ENTRIES, PLATFORMS, VALUES

from rankslice.framework.errors import RankSliceError
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_mapping import read_mapping
from rankslice.framework.specs.read_platform import read_platform

FEW = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check(mistakes: RankSliceError) -> None:
    assert mistakes.mistakes
    assert all(str(mistake).isprintable() for mistake in mistakes.mistakes)


@contextmanager
def only_told_mistakes() -> Iterator[None]:
    try:
        yield
    except RankSliceError as error:
        check(error)


@FEW
@given(content=BYTES | VALUES.map(lambda value: json.dumps(value).encode()))
def test_reading_a_mapping(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mapping.json"
    path.write_bytes(content)
    with only_told_mistakes():
        read_mapping(path)


def yaml_bytes(value: object) -> bytes:
    return yaml.dump(value, allow_unicode=True).encode("utf-8", "replace")


@FEW
@pytest.mark.parametrize("name", ["platform.yaml", "platform.txt"])
@given(content=BYTES | (VALUES | PLATFORMS).map(yaml_bytes))
def test_reading_a_platform(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with only_told_mistakes():
        read_platform(path)


GPU = Accelerator("litert")
PLATFORM = Platform(
    "platform.yaml",
    (
        Board("edge01", "edge01", cores=tuple(range(12)), gpus=(GPU,), npus=(GPU, GPU)),
        Board("a_b", "a_b", cores=(4, 7), gpus=(GPU,)),
        Board("pc", "pc", gpus=(GPU,)),
    ),
)


@FEW
@given(keys=st.lists(KEYS_OF_ENTRIES, max_size=5), share_cores=st.booleans())
def test_placing_ranks(keys: list[str], share_cores: bool) -> None:
    mapping = Mapping("mapping.json", tuple(MappingEntry(key, ()) for key in keys))
    with only_told_mistakes():
        result = place_ranks(mapping, PLATFORM, share_cores=share_cores)
        named = [(part.partition("*")[0], n) for n, k in enumerate(keys) for part in k.split("|")]
        assert named == [*zip((rank.key for rank in result.ranks), result.entries, strict=True)]
        assert all(rank.cores for rank in result.ranks)
        if not share_cores and not result.warnings:
            assert not any(rank.shared for rank in result.ranks)


GRAPH = line_graph("a: x -> b\nb: b -> c\na..b: c -> d d..\n..: d d.. -> y", outputs="y")
NAMES = st.lists(st.sampled_from(["a", "b", "c", "d", "..", "a..", "", "y"]), max_size=5)


@FEW
@given(values=st.lists(st.lists(NAMES.map("".join), max_size=4), max_size=3))
def test_assigning_layers(values: list[list[str]]) -> None:
    entries = tuple(MappingEntry(f"a_cpu{i}", tuple(value)) for i, value in enumerate(values))
    with only_told_mistakes():
        result = assign(Mapping("mapping.json", entries), GRAPH)
        assigned = [name for layers in result.layers for name in layers]
        assert sorted(layer.name for layer in GRAPH.layers) == sorted(assigned)
