"""The version of the runtime: of what ranks tell each other and report to the launcher."""

RUNTIME_VERSION = 12
"""Changes when ranks or launchers of different versions would misunderstand each other."""
