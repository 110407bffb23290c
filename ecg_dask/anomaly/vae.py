"""The network: a convolutional variational autoencoder of beats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from .inputs import LENGTH

#: Channels, kernel and stride of each layer of the encoder; the decoder mirrors them. The large
#: first stride keeps training on a CPU fast: finer layers cost twice the time, and gave the same
#: errors on MITDB.
LAYERS = ((32, 16, 8), (32, 4, 2))


class VAE(nn.Module):
    """Encoder to a Gaussian in latent space, and decoder back to the beat.

    Parameters
    ----------
    n_leads
        Channels of a beat.
    latent
        Latent dimensions.

    Notes
    -----
    Kingma DP, Welling M. Auto-Encoding Variational Bayes. ICLR 2014.
    https://doi.org/10.48550/arXiv.1312.6114
    """

    def __init__(self, n_leads: int, latent: int) -> None:
        super().__init__()
        encoder: list[nn.Module] = []
        decoder: list[nn.Module] = []
        channels, length = n_leads, LENGTH
        for out, kernel, stride in LAYERS:
            padding = (kernel - stride) // 2
            encoder += [nn.Conv1d(channels, out, kernel, stride, padding), nn.ReLU()]
            back = nn.ConvTranspose1d(out, channels, kernel, stride, padding)
            decoder = [nn.ReLU(), back, *decoder]
            channels, length = out, length // stride
        self.shape = (channels, length)
        self.encoder = nn.Sequential(*encoder)
        self.to_latent = nn.Linear(channels * length, 2 * latent)
        self.from_latent = nn.Linear(latent, channels * length)
        self.decoder = nn.Sequential(*decoder)

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and log variance in latent space, each (n_beats, latent)."""
        mean, log_variance = self.to_latent(self.encoder(x).flatten(1)).chunk(2, dim=1)
        # exp() stays finite, whatever the beat.
        return mean, log_variance.clamp(-20.0, 20.0)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """Return beats of shape (n_beats, n_leads, LENGTH)."""
        x: torch.Tensor = self.decoder(self.from_latent(z).view(-1, *self.shape))
        return x


def new_network(n_leads: int, latent: int, generator: torch.Generator) -> VAE:
    """Make a network with weights drawn from `generator`, and from no other source."""
    with torch.device("meta"):
        network = VAE(n_leads, latent)
    network.to_empty(device="cpu")
    for parameter in network.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)
        else:
            nn.init.zeros_(parameter)
    return network


class Network(NamedTuple):
    """A network's weights on their way.

    Attributes
    ----------
    weights
        float32 arrays by name; none of a network that was not trained.
    latent
        Latent dimensions.
    window
        Seconds before and after the R peak that a beat covers.
    """

    weights: Mapping[str, np.ndarray]
    latent: int
    window: tuple[float, float]

    def on(self, n_leads: int, device: Any) -> VAE:
        """Make the network on a device, for evaluation.

        Raises
        ------
        RuntimeError
            When names or shapes of the weights are not the network's.
        """
        with torch.device("meta"):
            network = VAE(n_leads, self.latent)
        # A copy: arrays that came from another process are read-only, which PyTorch does not know.
        state = {name: torch.tensor(array) for name, array in self.weights.items()}
        network.load_state_dict(state, assign=True)
        return network.to(device).eval()


def losses(network: VAE, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return reconstruction error and Kullback-Leibler divergence of each beat.

    Parameters
    ----------
    network
        The network.
    x
        Beats, (n_beats, n_leads, LENGTH).
    noise
        Standard normal, (n_beats, latent).

    Returns
    -------
    reconstruction
        Squared error, summed over points and leads, of shape (n_beats,).
    kl
        Divergence from the standard normal, summed over latent dimensions, of shape (n_beats,).
    """
    mean, log_variance = network.encode(x)
    y = network.decode(mean + torch.exp(0.5 * log_variance) * noise)
    reconstruction = (y - x).square().sum(dim=(1, 2))
    kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1)
    return reconstruction, kl
