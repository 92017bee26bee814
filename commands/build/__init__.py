"""Slice a model: sub-models, tables, rankfile, driver and a package per board."""
