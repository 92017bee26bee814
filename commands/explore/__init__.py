"""Search for good mappings; write mapping files, a table and a Pareto front."""
