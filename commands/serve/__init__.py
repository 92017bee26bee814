"""Answer requests of the Open Inference Protocol with pipelines of build folders."""
