"""Which mapping is best: cost model, planners, simulator."""
