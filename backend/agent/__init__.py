"""The programs that are sent to a board over ssh and run there with its own Python.

They need nothing but Python's standard library, and parse as Python 3.8. No file is written for
them: they are imported from a zip file in memory. ``jobs`` deploys packages and runs jobs;
``probe`` describes the board and measures links; both share the modules of this folder.

A request is a JSON object whose ``action`` names a function. The answer is one line of JSON on
stdout, behind :data:`.protocol.MARK`, because the login shell may print lines of its own.

The launcher imports constants and, in tests, single functions from here.
"""
