"""Files and texts to checked data: JSON, YAML, records."""
