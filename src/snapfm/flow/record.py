"""What a training run is, to tell it from another, and the record of how its weights were made.

Plain values that go to JSON as they are. Imports nothing of snapfm.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

_CURVE_POINTS = 200  # of the loss curve; each is the mean over its stretch of steps


def identify_run(network: nn.Module, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Describe what is known of a run before its data are; how often it saves does not change its weights."""
    parameters = dict(network.named_parameters())
    shapes = {name: (tuple(value.shape), value.dtype) for name, value in parameters.items()}
    return {
        "settings": {name: value for name, value in settings.items() if name != "save_every"},
        "network": {
            "kind": repr(getattr(network, "settings", type(network).__name__)),
            "parameters": sum(value.numel() * (2 if value.is_complex() else 1) for value in parameters.values()),
            "shapes": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        },
    }


def identify(network: nn.Module, data: Tensor, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Describe what a run is, to tell it from another."""
    values = data.detach().cpu().contiguous().view(torch.uint8).numpy()
    return {
        **identify_run(network, settings),
        "data": {
            "shape": list(data.shape),
            "dtype": str(data.dtype).removeprefix("torch."),
            "sha256": hashlib.sha256(values.data).hexdigest(),
        },
    }


def compose(
    identity: Mapping[str, Any],
    settings: Mapping[str, Any],
    losses: list[float],
    seconds: float,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write down how weights were made: `about` as given, then settings, data, losses in short, time and machine."""
    stretch = math.ceil(len(losses) / _CURVE_POINTS)
    curve = [
        {"step": min(start + stretch, len(losses)), "loss": math.fsum(part) / len(part)}
        for start in range(0, len(losses), stretch)
        if (part := losses[start : start + stretch])
    ]
    return {
        **about,
        "settings": dict(settings),
        "parameters": identity["network"]["parameters"],
        "data": identity["data"],
        "steps": len(losses),
        "seconds": round(seconds, 1),
        "loss_curve": curve,
        "machine": {
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": platform.machine(),
        },
    }
