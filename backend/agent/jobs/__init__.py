"""Deploys packages on a board, and starts, watches and tidies up runs there."""
