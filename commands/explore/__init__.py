"""Find good mappings: files for 'build', a table, and a page with the Pareto front."""
