"""Which mapping is best: cost model, planners, simulator."""

from rankslice.exploration.exact import Pipeline, Stage, optimal_pipeline
from rankslice.exploration.pipeedge import read_pipeedge
from rankslice.exploration.planner.chain import ArgumentError, Device
from rankslice.exploration.planner.no_plan import NoPlanError

__all__ = [
    "ArgumentError",
    "Device",
    "NoPlanError",
    "Pipeline",
    "Stage",
    "optimal_pipeline",
    "read_pipeedge",
]
