"""Channels whose messages are compressed, as links of the platform file or an option say."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Platform
from rankslice.framework.reading.read_driver import read_driver
from rankslice.framework.specs.read_platform import read_platform
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import Build, BuildOptions, build
from rankslice.session.inspecting.inspect import inspect_model
from rankslice.views.inspection_json import inspection_to_json
from rankslice.views.plan_text import plan_parts

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"
THREE = {"a_cpu0": ["conv1..pool1"], "b_cpu0": ["conv3..relu3"], "b_cpu1": ["conv4..softmax"]}
LINK = "bandwidth_mbps: 100, latency_ms: 0.2"


def built(
    folder: Path, links: str = "", mapping: dict[str, list[str]] = THREE, **options: object
) -> Build:
    folder.mkdir(exist_ok=True)
    boards = ", ".join(f"{name}: {{host: localhost, cores: 2}}" for name in "abc")
    (folder / "boards.yaml").write_text(f"boards: {{{boards}}}\nlinks: {{{links}}}\n")
    (folder / "mapping.json").write_text(json.dumps(mapping))
    paths = (folder / "mapping.json", folder / "boards.yaml", folder / "out")
    return build(DIGITS, *paths, BuildOptions(**options))  # type: ignore[arg-type]


def between(made: Build) -> set[str]:
    """Return how channels between boards are compressed; those within a board are not."""
    ranks, kinds = made.plan.ranks, defaultdict[bool, set[str]](set)
    for channel in (channel for route in made.plan.routes for channel in route.channels):
        is_within = ranks[channel.source].board == ranks[channel.destination].board
        kinds[is_within].add(channel.compress)
    assert {"none"} == kinds[True]
    return kinds[False]


def test_a_link_or_the_option_says_which_channels_between_boards_are_compressed(
    tmp_path: Path,
) -> None:
    default = f"default: {{{LINK}, compress: zstd}}"
    pair = f"pairs: [{{between: [b, a], {LINK}, compress: zstd}}]"
    numbers = itertools.count()

    def kinds(links: str = "", **options: object) -> set[str]:
        return between(built(tmp_path / str(next(numbers)), links, **options))

    assert {"none"} == kinds()
    assert {"none"} == kinds(f"default: {{{LINK}}}")
    assert {"zstd"} == kinds(default)
    assert {"zstd"} == kinds(pair)
    assert {"none"} == kinds(pair.replace("[b, a]", "[c, a]"))
    assert {"zstd"} == kinds(compress="zstd")
    assert {"none"} == kinds(default, compress="none")


def test_channels_of_both_routes_are_compressed(tmp_path: Path) -> None:
    (tmp_path / "surge.json").write_text(json.dumps(THREE))
    usual = {"a_cpu0": ["conv1..relu3"], "a_cpu1": ["conv4..softmax"]}
    made = built(tmp_path, mapping=usual, surge=tmp_path / "surge.json", compress="zstd")
    assert {"zstd"} == between(made)


def test_plan_driver_inspection_and_packages_say_what_is_compressed(tmp_path: Path) -> None:
    made = built(tmp_path, compress="zstd")
    assert made.plan == read_plan(made.folder)
    assert made.plan.job == read_driver(made.folder / "driver.py")
    driver = (made.folder / "driver.py").read_text()
    assert 1 == driver.count(', to=1, compress="zstd")')
    assert 1 == driver.count(', to=2, compress="zstd")')
    assert 2 == driver.count("compress")
    text = "\n".join(part for part in plan_parts(made.plan) if isinstance(part, str))
    assert "channels: 3 (2 compressed by zstd)" in text
    record = inspection_to_json(inspect_model(made.folder))
    channels = record["plan"]["channels"]
    assert ["zstd", "zstd", "none"] == [channel["compress"] for channel in channels]
    wanted = [(package / "requirements.txt").read_text() for package in made.packages]
    assert [True, True] == ["zstandard>=" in text for text in wanted]
    plain = built(tmp_path / "plain")
    assert "compress" not in (plain.folder / "driver.py").read_text()
    assert "zstandard" not in (plain.packages[0] / "requirements.txt").read_text()


def test_only_boards_on_a_compressed_link_need_the_package(tmp_path: Path) -> None:
    (tmp_path / "boards.yaml").write_text(
        "boards: {a: {}, b: {}, c: {}}\n"
        f"links: {{pairs: [{{between: [a, b], {LINK}, compress: zstd}}]}}\n"
    )
    platform: Platform = read_platform(tmp_path / "boards.yaml")
    assert [True, True, False] == [platform.compresses(board) for board in "abc"]


def test_an_unknown_compression_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match=r"links.default.compress.*gzip.*none or zstd"):
        built(tmp_path, f"default: {{{LINK}, compress: gzip}}")
    made = built(tmp_path / "1", compress="zstd")
    driver = made.folder / "driver.py"
    driver.write_text(driver.read_text().replace('"zstd"', '"lz4"'))
    with pytest.raises(RankSliceError, match=r"sends\[0\].*compress.*lz4.*none or zstd"):
        read_driver(driver)
