"""What the cost model says of plans."""

from __future__ import annotations

import numpy as np

from rankslice.exploration.cost.prediction import Prediction, predict
from rankslice.exploration.problem.problem import Problem
from rankslice.framework.plan import Plan


def predict_plan(problem: Problem, plan: Plan) -> Prediction:
    """Return what a plan costs whose ranks are the devices of a problem, by their keys."""
    number = {device.key: index for index, device in enumerate(problem.devices)}
    position = {name: index for index, name in enumerate(problem.layers)}
    chosen = np.zeros(len(problem.layers), np.int64)
    blocks = []
    for segment in plan.segments:
        blocks.append([position[name] for name in segment.layers if name in position])
        chosen[blocks[-1]] = number[plan.ranks[segment.rank].key]
    return predict(problem, chosen, blocks)
