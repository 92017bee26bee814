"""Steps from graph to graph, before layers are grouped into segments."""
