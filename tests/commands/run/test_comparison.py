"""What the comparison with the unsliced model takes into account."""

from __future__ import annotations

from dataclasses import replace

import pytest
from line_graphs import line_graph
from plans import routed

from rankslice.commands.run.comparison import _rounds
from rankslice.framework.plan import Plan

CHAIN = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")
WHOLE, HALVES = {"conv": 0, "relu": 0}, {"conv": 0, "relu": 1}


def in_float16(plan: Plan, name: str) -> Plan:
    """Return a plan in which one tensor is of the type float16."""
    return replace(
        plan,
        tensors=tuple(
            replace(tensor, dtype="float16") if tensor.name == name else tensor
            for tensor in plan.tensors
        ),
    )


@pytest.mark.parametrize(("usual", "surge"), [(WHOLE, HALVES), (HALVES, WHOLE)])
def test_cuts_of_either_route_may_round(usual: dict[str, int], surge: dict[str, int]) -> None:
    plan = routed(CHAIN, usual, surge)
    assert not _rounds(plan)
    assert _rounds(in_float16(plan, "a"))
    assert not _rounds(in_float16(routed(CHAIN, WHOLE, WHOLE), "x"))
