"""Run neural networks across the accelerators of several small boards, one MPI rank per slice."""

__version__ = "0.1.0"
