"""``rankslice probe``: its options, what it does, and how that is shown."""
