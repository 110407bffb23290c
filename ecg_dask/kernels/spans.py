"""Loops over cells in search of spans that cannot be analysed; each is written twice."""

from __future__ import annotations

import importlib
from typing import Any

from ..arrays import on_gpu


def _twin(array: Any) -> Any:
    return importlib.import_module(
        ".cuda_spans" if on_gpu(array) else ".cpu_spans", __name__.rpartition(".")[0]
    )


def rails(
    low: Any, high: Any, begin: Any, length: int, upper: Any, lower: Any, share: float
) -> Any:
    """Tell which levels their surroundings do not go beyond, and few of them reach.

    Parameters
    ----------
    low, high
        Least and greatest sample of each cell, float32 of shape (n_cells,); inf and -inf where
        nothing was recorded. A cell changes where ``low < high``.
    begin
        First cells of the surroundings, int64 of shape (n_levels,). Those outside the cells that
        are given take no part.
    length
        Cells of the surroundings.
    upper, lower
        Levels, float32 of shape (n_levels,).
    share
        At most this share of the cells that change may reach the level, and one must change.

    Returns
    -------
    array
        int8 of shape (n_levels,): 1 where no cell exceeds the upper level and few reach it, plus 2
        where none falls below the lower one and few reach that.
    """
    return _twin(low).rails(low, high, begin, length, upper, lower, share)


def plateaus(
    x: Any,
    first: int,
    cell: int,
    upper: Any,
    lower: Any,
    rail: Any,
    plateau: int,
    entry: int,
    steep: float,
) -> Any:
    """Find the parts of plateaus that lie in each cell.

    Parameters
    ----------
    x
        Samples, float32 of shape (n,), NaN where missing.
    first
        Index into `x` of the first cell's first sample.
    cell
        Samples a cell.
    upper, lower, rail
        Each cell's levels, and what `rails` said of them, of shape (n_cells,).
    plateau
        Samples at a level, as many or more, are a plateau.
    entry
        Samples from a plateau's first or last one to where the signal has left it, if that is a
        steep end of it.
    steep
        At a steep end the signal has left by so many steps: the least one, of those that are not
        zero, between neighbours up to ``plateau + entry`` samples around the cell.

    Returns
    -------
    array
        float64 of shape (4, n_parts), in which whole numbers up to 2**53 are exact: the half-open
        bounds of each part as indices into `x`, its level, and 1 where it has a steep end, else 0.
        Those at upper levels come first, each in the order of samples. A part ends where its cell
        does, which is no end of the plateau.
    """
    return _twin(x).plateaus(x, first, cell, upper, lower, rail, plateau, entry, steep)


def noisy(
    crests: Any,
    radius: int,
    pause: int,
    quiet: float,
    faint: float,
    rhythm: tuple[int, int],
    regularity: float,
) -> Any:
    """Tell which cells have energy around them that is spread without rhythm.

    Parameters
    ----------
    crests
        Greatest energy in each sub-cell, float32 of shape (n_cells * PER_CELL,); -1 where nothing
        was recorded.
    radius
        Cells on either side that a cell is judged by.
    pause
        Cells on either side whose loudest one says whether a cell is in a pause.
    quiet
        Energy is spread where more than half of the recorded cells around have in none of their
        recorded sub-cells less than this share of the loudest one around.
    faint
        What is fainter than this share of the loudest one is a pause.
    rhythm
        First and last interval, in sub-cells, at which energy may repeat itself.
    regularity
        It does where the autocorrelation of its root, in 255 steps of the loudest one, from whose
        mean it is counted, has at least this share of its power.

    Returns
    -------
    array
        int8 of shape (n_cells,): 1 where a cell is noisy, plus 2 where no sub-cell of it is quieter
        than it may be in some noisy cell within the radius. More than half of the cells around a
        noisy one are recorded, and so is that one itself.

    Notes
    -----
    The autocorrelation is of whole numbers, whose sums are the same in any order.
    """
    return _twin(crests).noisy(crests, radius, pause, quiet, faint, rhythm, regularity)
