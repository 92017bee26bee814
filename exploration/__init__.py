"""Which mapping is best: cost model, planners, simulator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankslice.exploration.planner.chain import ArgumentError, Device, LayerChain
    from rankslice.exploration.planner.infeasible import NoPlanError
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

_HOMES = {
    "infeasible": ("NoPlanError",),
    "chain": ("ArgumentError", "Device", "LayerChain"),
}
"""By module of the planner, what it has; the rest is in ``optimal``."""


def __getattr__(name: str) -> Any:
    """Import the planner when it is first used: it takes long, and options need none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "optimal")
    return getattr(import_module(f"{__name__}.planner.{home}"), name)
