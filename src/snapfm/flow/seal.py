"""Seal: tells whether a network is still what it was when its weights were copied."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

_PROBED = 16  # numbers of each weight that are compared at every call


class Seal:
    """Everything a copy was made from; broken once modules, hooks or weights of the network are others.

    torch counts writes to a tensor in its version, whoever makes them, but for those through `.data` or NumPy. Against
    these a few numbers of every weight are compared: enough for updates of whole weights, as averages and optimizers
    make them, not for a single element. All of it takes 0.05 ms.
    """

    def __init__(self, network: nn.Module) -> None:
        self._modules = list(network.modules())
        self._children = self._find_children()
        self._weights = self._find_weights()
        self._marks = self._read_marks()
        self._probes = [_probe(weight) for weight in self._weights]
        self._numbers = torch.cat(self._probes)

    def holds(self) -> bool:
        """Say whether a copy made when the seal was can still be used."""
        return (
            self._find_children() == self._children
            and list(map(id, self._find_weights())) == list(map(id, self._weights))
            and self._read_marks() == self._marks
            and not hooked(self._modules)
            and torch.equal(torch.cat(self._probes), self._numbers)
        )

    def _find_children(self) -> list[nn.Module | None]:
        return [child for module in self._modules for child in module._modules.values()]

    def _find_weights(self) -> list[Tensor]:
        weights = [weight for module in self._modules for weight in module._parameters.values() if weight is not None]
        return [*weights, self._modules[0].get_buffer("coordinates")]  # of the network itself

    def _read_marks(self) -> list[tuple[int, int]]:
        return [(weight._version, weight.data_ptr()) for weight in self._weights]


def _probe(weight: Tensor) -> Tensor:
    """View evenly spaced numbers of a weight as integers, in which a NaN equals itself."""
    real = torch.view_as_real(weight.detach()) if weight.is_complex() else weight.detach()
    flat = real.view(-1)
    return flat[:: -(-len(flat) // _PROBED)].view(torch.int32 if flat.dtype == torch.float32 else torch.int64)


def hooked(modules: Iterable[nn.Module]) -> bool:
    """Say whether someone listens to a module, which must then be called."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)
