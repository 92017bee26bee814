"""Which mapping is best: cost model, planners, simulator."""

from rankslice.exploration.planner.infeasible import NoPlanError
from rankslice.exploration.planner.layer_chain import ArgumentError, Device, LayerChain
from rankslice.exploration.planner.optimal import Pipeline, PlannedSlice, optimal_pipeline

__all__ = [
    "ArgumentError",
    "Device",
    "LayerChain",
    "NoPlanError",
    "Pipeline",
    "PlannedSlice",
    "optimal_pipeline",
]
