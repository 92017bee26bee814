"""Figures 4 and 5 of the AutoDiCE paper, drawn from what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autodice_paper import FIGURE_5, TABLE_2, TITLES, Point, Solution
from plotting import new_figure, save_figure

_OURS, _PAPER, _OTHER = "#4269d0", "#e2711d", "#3a9d5d"
_MEMORY = "#8d6cab"
_AXES = {"energy_j": "energy, J per frame and board", "memory_mb": "memory, MB per board"}


def _panels(solutions: Mapping[str, Solution], height: float) -> tuple[Any, Any]:
    """Return a figure with two axes for each network, (2, networks)."""
    figure, axes = new_figure(4 * len(solutions), height, 2, len(solutions))
    return figure, axes.reshape(2, len(solutions))


def draw_fronts(solutions: Mapping[str, Solution], files: Sequence[Path]) -> None:
    """Draw, for each network, energy and memory of the worst board over the rate."""
    figure, axes = _panels(solutions, 7)
    for column, (network, one) in enumerate(solutions.items()):
        for row, (name, label) in enumerate(_AXES.items()):
            axis = axes[row][column]
            marks = _draw_front(axis, one, name)
            _draw_points(axis, (*one.one_board, *one.selected), name, _OURS, "ours")
            _draw_points(axis, TABLE_2[network], name, _PAPER, "the paper's")
            axis.margins(x=0.1)
            axis.set(xlim=(0, None), ylim=(0, None), xlabel="frames/s", ylabel=label)
            axis.grid(alpha=0.3)
        axes[0][column].set_title(TITLES[network], loc="left")
    axes[0][0].legend(loc="upper right", frameon=False)
    figure.colorbar(marks, ax=axes, label="boards of a mapping on the front", shrink=0.5)
    save_figure(figure, files)


def _draw_front(axis: Any, solution: Solution, name: str) -> Any:
    return axis.scatter(
        [point.fps for point in solution.front],
        [getattr(point, name) for point in solution.front],
        c=[point.boards for point in solution.front],
        cmap="viridis_r",
        vmin=1,
        vmax=8,
        s=14,
    )


def _draw_points(axis: Any, points: Sequence[Point], name: str, colour: str, label: str) -> None:
    rates = [point.fps for point in points]
    values = [getattr(point, name) for point in points]
    axis.scatter(rates, values, marker="x", color=colour, label=f"points, {label}")
    for point, rate, value in zip(points, rates, values, strict=True):
        text = point.name.removeprefix("one board, ")
        below = {"xytext": (-4, -12), "textcoords": "offset points"}
        beside = {"xytext": (4, 4), "textcoords": "offset points"}
        offset = below if text == "CPU" else beside  # clear of the axis, and of the GPU's
        axis.annotate(text, (rate, value), color=colour, **offset)


def draw_boards(
    solutions: Mapping[str, Solution], faster: Mapping[str, Solution], files: Sequence[Path]
) -> None:
    """Draw the best of each number of boards, as multiples of the best on one board.

    Args:
        found: with the paper's speed, by network.
        faster: with the speed of this machine.
        files: to draw into.
    """
    figure, axes = _panels(solutions, 6)
    for column, (network, one) in enumerate(solutions.items()):
        _draw_rates(axes[0][column], one, FIGURE_5[network])
        if network in faster:
            quick = faster[network]
            rates = _relative(quick, "throughput", "fps")
            axes[0][column].plot(
                _numbers(quick), rates, "o-", color=_OTHER, label="as fast as here"
            )
        _draw_needs(axes[1][column], one)
        axes[0][column].set_title(TITLES[network], loc="left")
        for axis in axes[:, column]:
            axis.set(xlabel="boards", xticks=_numbers(one))
    for row, label in enumerate(("highest rate", "least need of a board")):
        axes[row][0].set_ylabel(f"{label}, one board: 1")
        handles, labels = axes[row][0].get_legend_handles_labels()
        axes[row][-1].legend(handles, labels, loc="center left", bbox_to_anchor=(1, 0.5))
    save_figure(figure, files)


def _draw_rates(axis: Any, solution: Solution, paper: float) -> None:
    boards = _numbers(solution)
    rates = _relative(solution, "throughput", "fps")
    axis.bar(boards, rates, color=_OURS, label="as fast as the paper's")
    first = solution.boards[0]["throughput"].fps
    blocking = [points["throughput"].blocking_fps or 0.0 for points in solution.boards]
    without = [rate / first for rate in blocking]
    axis.plot(boards, without, "v", color=_PAPER, label="the same, without overlap")
    axis.axhline(paper, ls=":", color=_PAPER, label="the paper's highest, on four")


def _draw_needs(axis: Any, solution: Solution) -> None:
    for shift, objective, name, colour in (
        (-0.2, "energy", "energy_j", _OTHER),
        (0.2, "memory", "memory_mb", _MEMORY),
    ):
        boards = [number + shift for number in _numbers(solution)]
        axis.bar(boards, _relative(solution, objective, name), 0.4, color=colour, label=objective)


def _numbers(solution: Solution) -> list[int]:
    return [points["throughput"].boards for points in solution.boards]


def _relative(solution: Solution, objective: str, name: str) -> list[float]:
    values = [getattr(points[objective], name) for points in solution.boards]
    return [value / values[0] for value in values]
