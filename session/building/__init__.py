"""From model, mapping and platform to a build folder."""
