"""Spans of consecutive layers with one owner, and sums by row and column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


def sums(row: Indices, column: Indices, values: Floats, shape: tuple[int, int]) -> Floats:
    """Return the sums of values by row and column."""
    at, size = row * shape[1] + column, shape[0] * shape[1]
    flat: Floats = np.bincount(at, weights=values, minlength=size).astype(np.float64, copy=False)
    return flat.reshape(shape)


def counts(readers: Indices, devices: int) -> Floats:
    """Return (rows, devices): how often each device stands in a row."""
    rows = np.repeat(np.arange(len(readers)), readers.shape[1])
    return sums(rows, readers.ravel(), np.ones(readers.size), (len(readers), devices))


@dataclass(frozen=True, slots=True)
class Spans:
    """Consecutive layers of one device or segment, of all assignments; all arrays are (spans,)."""

    row: Indices
    """Which assignment."""
    owner: Indices
    """The device or the segment."""
    first: Indices
    last: Indices


def span_numbers(population: Indices) -> Indices:
    """Return (assignments, layers): the span of each layer, numbered from 0."""
    changes = population[:, 1:] != population[:, :-1]
    return np.pad(np.cumsum(changes, axis=1), ((0, 0), (1, 0)))


def spans_of(owners: Indices) -> Spans:
    """Return the spans of (assignments, layers) owners, row by row and in the layers' order."""
    starts = np.ones(owners.shape, bool)
    starts[:, 1:] = owners[:, 1:] != owners[:, :-1]
    row, first = np.nonzero(starts)
    layers = owners.shape[1]
    ends = np.append(first[1:], layers) - 1
    ends[ends < 0] = layers - 1  # the next span is the first of another row
    return Spans(row, owners[row, first], first, ends)
