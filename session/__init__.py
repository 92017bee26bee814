"""A job's life, step by step.

Prepare (``prepare``), start (``start``, ``across_boards``), feed and drain (``connection`` where
the source reads frames itself; ``pipeline``, ``fed_run``, ``keeper`` where this machine has them),
fail over (``fail_over``), and collect (``run``, ``run_record``, ``results_files``).
"""
