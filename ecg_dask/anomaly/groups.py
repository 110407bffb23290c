"""Groups of anomalies that look alike: a few pictures to check instead of hundreds of beats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from .scoring import PARTS

#: Most groups that anomalies fall into.
MOST_GROUPS = 6

#: What makes a median of squares the mean of squares, in a normal distribution of one dimension;
#: in one of more it is less.
WIDTH = 1.4826**2

#: Anomalies that are clustered, evenly chosen; the memory of it grows with their square.
MOST_CLUSTERED = 2_000

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def group_anomalies(scored: pd.DataFrame) -> pd.Series:
    """Group the anomalies of one or more records by their place in latent space and their scores.

    A place is made of the latent coordinates and of the logarithms of the parts of the score (and
    1): the network makes usual beats of some that are not, and these differ by score alone. It is
    told from the median of the record's beats that are no anomalies, so that anomalies
    of two records meet in one group when they differ alike from what is usual there. Groups are
    joined by Ward's rule, and the fewest are taken, but at most `MOST_GROUPS`, that are on average
    no wider than the usual beats: the mean squared distance of the anomalies from the centroid of
    their group is at most `WIDTH` times the median squared distance of the other beats from the
    median of their record. For the anomalies it is the mean, since it feels a single one that is
    like no other, and that one needs a picture of its own. For the others it is the median, since
    some of them may be anomalies that the threshold missed.

    Parameters
    ----------
    scored
        Table of beats with ``record``, ``sample``, ``anomaly``, ``score_shape``,
        ``score_timing``, ``score_amplitude`` and ``z0``, ``z1``, ...: whole records, in any order
        of rows.

    Returns
    -------
    pandas.Series
        ``group`` (Int16), row for row and with the index of `scored`: 1 for the largest group, of
        equally large ones that with the first beat, by record and sample. Null where there is no
        anomaly, or no coordinates.

    Notes
    -----
    Ward JH. Hierarchical Grouping to Optimize an Objective Function. J Am Stat Assoc
    1963;58:236-244. https://doi.org/10.1080/01621459.1963.10500845
    """
    names = [name for name in scored.columns if name[:1] == "z" and name[1:].isdecimal()]
    parts = scored[[f"score_{part}" for part in PARTS]].to_numpy(dtype=np.float64, na_value=np.nan)
    z = scored[names].to_numpy(dtype=np.float64, na_value=np.nan)
    x = np.hstack([z, np.log1p(parts)])
    known = np.isfinite(x).all(axis=1) & bool(names)
    anomaly = scored["anomaly"].to_numpy(dtype=bool) & known
    group = np.zeros(len(scored), dtype=np.int64)
    if anomaly.any():
        usual = known & ~anomaly
        place = _places(x, scored["record"], usual, known)
        # In this order, whatever that of the rows is: ties would else be broken by it.
        order = scored[["record", "sample"]].reset_index(drop=True)[anomaly]
        rows = order.sort_values(["record", "sample"]).index.to_numpy()
        group[rows] = _by_size(_clustered(place[rows], _width(place[usual])))
    numbers = pd.array(group, dtype="Int16")
    numbers[group == 0] = pd.NA
    return pd.Series(numbers, index=scored.index, name="group")


def group_facts(scored: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what is to be told of each group, the largest first.

    Parameters
    ----------
    scored
        Table of beats with ``record``, ``reason`` and ``group``.

    Returns
    -------
    list
        A dict a group: ``group``, its number; ``beats``, how many; ``share``, of all beats that
        have a group; ``reasons``, beats by reason; ``records``, beats by record, most first.
    """
    grouped = scored[scored["group"].notna()]
    return [
        {
            "group": number,
            "beats": len(rows),
            "share": len(rows) / len(grouped),
            "reasons": reason_counts(rows),
            "records": rows["record"].value_counts().to_dict(),
        }
        for number in sorted(grouped["group"].unique().tolist())
        for rows in [grouped[grouped["group"] == number]]
    ]


def reason_counts(scored: pd.DataFrame) -> dict[str, int]:
    """Return how many of some beats are anomalies for which reason."""
    counts = scored["reason"].value_counts()
    return {part: int(counts.get(part, 0)) for part in PARTS}


def _places(x: Floats, record: pd.Series, usual: Mask, known: Mask) -> Floats:
    """Return coordinates, told from the median of each record's usual beats."""
    codes, _ = pd.factorize(record)
    of_usual, of_known = (
        pd.DataFrame(np.where(rows[:, None], x, np.nan)).groupby(codes).median()
        for rows in (usual, known)
    )
    # In a record of nothing else the anomalies are told from their own median.
    place: Floats = x - of_usual.fillna(of_known).to_numpy()[codes]
    return place


def _width(place: Floats) -> float:
    """Return the mean squared distance that a group may have; 0 where there are no usual beats."""
    return WIDTH * float(np.median(np.square(place).sum(axis=1))) if len(place) else 0.0


def _clustered(place: Floats, width: float) -> Labels:
    """Return a label from 0 on for each place, of shape (n,)."""
    n = len(place)
    chosen = np.linspace(0, n - 1, min(n, MOST_CLUSTERED)).astype(np.int64)
    some = place[chosen]
    if len(some) == 1:
        return np.zeros(1, dtype=np.int64)
    # Of the distances: points as many as their coordinates could be taken for distances.
    joined = linkage(pdist(some), "ward")
    # To join two at height h adds h**2 / 2 to the squared distances from the centroids; the last
    # k - 1 steps are left out for k groups.
    within = np.append(0.0, np.cumsum(joined[:, 2] ** 2 / 2))
    n_joins = int(np.searchsorted(within, width * len(some), side="right")) - 1
    n_joins = max(n_joins, len(some) - MOST_GROUPS)
    # By the number of a step and not by its height: steps of equal height are not all done.
    step = np.arange(len(joined), dtype=np.float64)
    label = fcluster(joined, n_joins - 1, "monocrit", monocrit=step) - 1
    centroids = np.stack([some[label == i].mean(axis=0) for i in range(label.max() + 1)])
    distance = np.stack([np.square(place - centroid).sum(axis=1) for centroid in centroids])
    nearest: Labels = distance.argmin(axis=0).astype(np.int64)
    nearest[chosen] = label
    return nearest


def _by_size(label: Labels) -> Labels:
    """Give labels numbers from 1 on: the most frequent first, of equally frequent the earlier."""
    names, first, inverse, counts = np.unique(
        label, return_index=True, return_inverse=True, return_counts=True
    )
    number = np.empty(len(names), dtype=np.int64)
    number[np.lexsort((first, -counts))] = np.arange(1, len(names) + 1)
    numbered: Labels = number[inverse]
    return numbered
