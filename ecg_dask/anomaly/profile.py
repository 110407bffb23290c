"""What is usual in one record: its typical beats, and how far its beats usually are from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.dlpack import from_dlpack

from ..arrays import namespace
from ..gpu.pool import told_when_full
from .inputs import LENGTH
from .vae import VAE, Network

#: Where a QRS complex lies, also a wide one, and a P wave with what it may fall upon: seconds from
#: the R peak. The PR interval is at most 0.2 s.
QRS_S, P_S = (-0.042, 0.078), (-0.25, -0.042)

#: Beats are compared over their mean up to here: no beat follows so soon. The network's input is
#: over the mean of the whole window, which the next beat shifts where it is early.
LEVEL_S = 0.2

#: Typical beats that a record has at most, and the share of its usual beats that each needs.
TYPES, LEAST_SHARE = 4, 0.1

#: Two types are farther from each other than so many of their robust deviations together, along
#: the line between them. The halves of one normal distribution are 1.9 apart.
APART = 3.0

#: Rounds in which usual beats are assigned to types.
_ROUNDS = 30

#: Energies are squares of heights of which the QRS complex has 4; this one is far below noise.
FAINT = 1e-6

#: A P wave with less than so much of the typical one's energy counts as none.
NO_P = 0.1

#: Least robust deviation of the logarithm of an energy: of beats that are all alike, 2 %.
LEAST_DEVIATION = 0.02


class Regions(NamedTuple):
    """Points of the network's input that the QRS complex and the P wave take, and their level."""

    qrs: slice
    p: slice
    level: slice


class Profile(NamedTuple):
    """What is usual in a record, as tensors or, on the way to other workers, arrays of the host.

    Attributes
    ----------
    types
        Typical beats, (n_types, n_leads, LENGTH).
    wave
        Median of the usual beats, (n_leads, LENGTH).
    residual
        Median of what the network leaves of them, (n_leads, LENGTH).
    middle, deviation
        Median and robust deviation of the usual beats' `views`, (4,).
    """

    types: Any
    wave: Any
    residual: Any
    middle: Any
    deviation: Any

    def on(self, device: Any) -> Profile:
        """Return it as tensors of a device."""
        return Profile(*(torch.tensor(part, device=device) for part in self))

    def on_host(self) -> Profile:
        """Return it as NumPy arrays."""
        return Profile(*(part.cpu().numpy() for part in self))


class Views(NamedTuple):
    """Beats beside their record's usual ones.

    Attributes
    ----------
    logs
        Logarithms of energies, (n_beats, 4): QRS against the nearest typical beat; QRS against
        what the network makes of it; P wave against the typical one; the same, as a share of the
        P wave's own energy, which tells a P wave that is missing.
    explained
        Shares of the first and the third energy that go when the typical beat is made as high as
        the QRS complex is, (n_beats, 2).
    """

    logs: torch.Tensor
    explained: torch.Tensor


def regions(window: tuple[float, float]) -> Regions:
    """Return the points of the regions in a window of seconds before and after the R peak."""
    before_s, after_s = window
    step_s = (before_s + after_s) / LENGTH

    def points(span_s: tuple[float, float]) -> slice:
        start, stop = (round((time_s + before_s) / step_s) for time_s in span_s)
        # A window that ends before a region, or begins behind it, leaves its edge.
        start = min(max(start, 0), LENGTH - 2)
        return slice(start, min(max(stop, start + 2), LENGTH))

    return Regions(points(QRS_S), points(P_S), points((-before_s, LEVEL_S)))


def views(x: torch.Tensor, y: torch.Tensor, profile: Profile, where: Regions) -> Views:
    """Look at beats beside their record's usual ones.

    Parameters
    ----------
    x
        Beats as the network sees them, (n_beats, n_leads, LENGTH).
    y
        What the network makes of them.
    profile
        What is usual; `middle` and `deviation` are not used.
    where
        The regions.
    """
    x, y = _levelled(x, where), _levelled(y, where)
    qrs = x[..., where.qrs]
    types = profile.types[..., where.qrs]
    distance, nearest = (qrs[:, None] - types).square().mean(dim=(2, 3)).min(dim=1)
    nearest_type = types[nearest]
    energy = nearest_type.square().sum(dim=(1, 2)) + FAINT
    gain = (nearest_type * qrs).sum(dim=(1, 2)) / energy
    left = (x - y - profile.residual)[..., where.qrs].square().mean(dim=(1, 2))
    p, typical = _centred(x[..., where.p]), _centred(profile.wave[..., where.p])
    other = (p - typical).square().mean(dim=(1, 2))
    own = p.square().mean(dim=(1, 2)) + NO_P * typical.square().mean() + FAINT
    energies = torch.stack([distance, left, other, other / own], dim=1)
    # What is left of the two when the typical beat is made as high. No height explains a beat that
    # is upside down, height zero, which is no beat, included.
    upright, gain = gain[:, None] > 0, gain[:, None, None]
    rest = (qrs - gain * nearest_type), p - gain * typical
    left_over = torch.stack([part.square().mean(dim=(1, 2)) for part in rest], dim=1)
    explained = 1 - left_over / (torch.stack([distance, other], dim=1) + FAINT)
    return Views((energies + FAINT).log(), explained.clamp(0, 1) * upright)


def profile_of(x: torch.Tensor, vae: VAE, where: Regions) -> Profile:
    """Make the profile of a record.

    Parameters
    ----------
    x
        Its usual beats, (n_beats, n_leads, LENGTH), one or more.
    vae
        The trained network.
    where
        The regions.
    """
    z, _ = vae.encode(x)
    y = vae.decode(z)
    label = _assigned(z)
    x, y = _levelled(x, where), _levelled(y, where)
    types = torch.stack([_median(x[label == i]) for i in range(int(label.max()) + 1)])
    profile = Profile(types, _median(x), _median(x - y), types.new_zeros(4), types.new_ones(4))
    logs = views(x, y, profile, where).logs
    middle = _median(logs)
    deviation = (1.4826 * _median((logs - middle).abs())).clamp(min=LEAST_DEVIATION)
    return profile._replace(middle=middle, deviation=deviation)


@told_when_full
def profiles(
    samples: Sequence[Sequence[tuple[str, Any]]],
    network: Network,
) -> dict[str, Profile]:
    """Make the profile of each record (a task).

    Parameters
    ----------
    samples
        Of each partition, names of records and some of their usual beats, float32 arrays of shape
        (n_beats, n_leads, LENGTH), NumPy or CuPy.
    network
        The network; without weights there are no profiles.
    """
    of_record: dict[str, list[Any]] = {}
    for sample in samples:
        for name, inputs in sample:
            if network.weights and len(inputs):
                of_record.setdefault(name, []).append(inputs)
    found = {}
    vae = None
    for name, parts in of_record.items():
        # A copy: PyTorch must not be given an array that came from another process.
        x = from_dlpack(namespace(parts[0]).concatenate(parts))
        if vae is None:
            vae = network.on(x.shape[1], x.device)
        with torch.no_grad():
            found[name] = profile_of(x, vae, regions(network.window)).on_host()
    return found


def _assigned(z: torch.Tensor) -> torch.Tensor:
    """Assign usual beats to types, numbered from 0 on, by k-medians in latent space.

    It begins at the median and goes outwards: each further start is at the 95th percentile of the
    distances to those before, which leaves the few that lie farthest alone. Types of too few beats,
    and those that are not apart from a larger one, are given up, and theirs go to the others.
    """
    centres = _median(z)[None]
    far = int(0.95 * (len(z) - 1))
    while len(centres) < TYPES:
        order = torch.sort(_distances(z, centres).min(dim=1).values, stable=True).indices
        centres = torch.cat([centres, z[order[far]][None]])
    centres, label = _medians(z, centres)
    counts = torch.bincount(label, minlength=TYPES)
    kept: list[int] = []
    for i in torch.sort(counts, descending=True, stable=True).indices.tolist():
        enough = not kept or counts[i] >= LEAST_SHARE * len(z)
        if enough and all(_are_apart(z[label == i], z[label == j]) for j in kept):
            kept.append(i)
    return _medians(z, centres[kept])[1]


def _medians(z: torch.Tensor, centres: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Move centres to the medians of the points nearest to them; return them and the nearest."""
    label = _distances(z, centres).argmin(dim=1)
    for _ in range(_ROUNDS):
        moved = torch.stack(
            [_median(z[label == i]) if (label == i).any() else one for i, one in enumerate(centres)]
        )
        if torch.equal(moved, centres):
            break
        centres = moved
        label = _distances(z, centres).argmin(dim=1)
    return centres, label


def _are_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two sets of points are apart along the line between their medians."""
    line = _median(one) - _median(other)
    distance = float(line.norm())
    if not distance:
        return False
    spread = 0.0
    for points in (one, other):
        along = points @ line / distance
        spread += 1.4826 * float(_median((along - _median(along)).abs()))
    return distance > APART * spread


def _distances(z: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    return (z[:, None] - centres).square().sum(dim=2)


def _median(values: torch.Tensor) -> torch.Tensor:
    """Return the lower median over the first axis, which is one of the values."""
    return values.sort(dim=0).values[(len(values) - 1) // 2]


def _levelled(waves: torch.Tensor, where: Regions) -> torch.Tensor:
    return waves - waves[..., where.level].mean(dim=-1, keepdim=True)


def _centred(waves: torch.Tensor) -> torch.Tensor:
    return waves - waves.mean(dim=-1, keepdim=True)
