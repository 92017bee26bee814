"""An exploration as the terminal shows it."""

from __future__ import annotations

import io
from dataclasses import replace

from explorations import candidates, exploration
from rich.console import Console

from rankslice.commands.explore.show import print_exploration
from rankslice.exploration.results.candidates import Exploration


def printed(exploration: Exploration) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_exploration(exploration, "explored", console)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_a_star_says_by_which_objectives_another_mapping_is_as_good() -> None:
    text = printed(exploration())
    assert "3*" in text
    worse = "not on the front, as another mapping is at least as good in"
    assert f"*: {worse} throughput, energy and memory" in text
    only = replace(exploration(), objectives=("throughput", "latency"))
    assert f"*: {worse} throughput and latency" in printed(only)


def test_a_star_that_nothing_has_is_not_explained() -> None:
    front = tuple(candidate for candidate in candidates() if candidate.on_front)
    assert "*" not in printed(exploration(front))
