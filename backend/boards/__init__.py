"""Boards: reached over ssh, probed, given their packages, and watched during a run."""
