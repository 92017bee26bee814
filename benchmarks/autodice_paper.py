"""What the AutoDiCE paper found: its Table II, and what it says of its Figure 5; our records.

Guo, Pimentel, Stefanov: AutoDiCE: Fully Automated Distributed CNN Inference at the Edge,
arXiv:2207.12113, sections IV-A to IV-C. The boards are Jetson Xavier NX on a Gigabit switch, the
networks have float32 weights, a batch is one image.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLES = {"densenet121": "DenseNet-121", "resnet101": "ResNet-101", "vgg19": "VGG-19"}
OBJECTIVES = ("throughput", "energy", "memory")


@dataclass(frozen=True, slots=True)
class Point:
    """A mapping and what it costs."""

    name: str
    energy_j: float
    """Of the board that takes most, for each frame."""
    fps: float
    memory_mb: float
    """Of the board that needs most."""
    boards: int
    cores: int
    gpus: int
    simulated_fps: float | None = None
    """By discrete events; ``None``: not simulated."""
    blocking_fps: float | None = None
    """If ranks did not compute while they send and receive; ``None``: not worked out."""
    bottleneck: str = ""
    """What is busiest, in words; empty: not worked out."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What a search found."""

    seconds: float
    one_board: tuple[Point, ...]
    """The whole network on one board's CPU, and on its GPU."""
    selected: tuple[Point, ...]
    """On as many boards as the paper's points, with their names."""
    boards: tuple[dict[str, Point], ...]
    """The best for each objective, on one board, on two, and so on."""
    front: tuple[Point, ...]


CPU, GPU = "one board, CPU", "one board, GPU"

TABLE_2 = {
    "densenet121": (
        Point(CPU, 0.905, 7.987, 129.984, 1, 6, 0),
        Point(GPU, 0.650, 12.807, 251.172, 1, 0, 1),
        Point("A", 0.430, 27.941, 152.336, 4, 0, 4),
        Point("B", 0.408, 23.551, 149.941, 6, 6, 5),
        Point("C", 0.977, 7.546, 51.066, 8, 38, 0),
    ),
    "resnet101": (
        Point(CPU, 1.635, 5.786, 656.527, 1, 6, 0),
        Point(GPU, 1.031, 21.767, 955.012, 1, 0, 1),
        Point("D", 0.425, 26.406, 360.766, 7, 0, 7),
        Point("E", 0.488, 30.048, 329.641, 7, 12, 5),
        Point("F", 0.886, 12.123, 127.883, 8, 48, 0),
    ),
    "vgg19": (
        Point(CPU, 1.471, 7.273, 1310.91, 1, 6, 0),
        Point(GPU, 1.523, 11.664, 1666.418, 1, 0, 1),
        Point("G", 0.680, 11.651, 998.273, 6, 0, 6),
        Point("H", 0.791, 17.385, 868.496, 6, 6, 5),
        Point("I", 1.035, 7.194, 604.504, 7, 30, 2),
    ),
}
"""Two mappings to one board, then three of the Pareto front."""

ENDS = {
    **dict.fromkeys("AEH", "throughput"),
    **dict.fromkeys("BDG", "energy"),
    **dict.fromkeys("CFI", "memory"),
}
"""In what each of the three points is the best of them."""

FIGURE_5 = {"densenet121": 1.38, "resnet101": 1.18, "vgg19": 1.18}
"""Highest rate on up to four boards, as a multiple of the best one on one board. With more than
four boards the paper's rates fall."""
