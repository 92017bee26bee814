"""Which mapping is best: cost model, planners, simulator."""

from rankslice.exploration.planner.chain import ArgumentError, Device
from rankslice.exploration.planner.infeasible import NoPlanError
from rankslice.exploration.planner.optimal import Pipeline, PlannedSlice, optimal_pipeline
from rankslice.exploration.planner.pipeedge import read_pipeedge

__all__ = [
    "ArgumentError",
    "Device",
    "NoPlanError",
    "Pipeline",
    "PlannedSlice",
    "optimal_pipeline",
    "read_pipeedge",
]
