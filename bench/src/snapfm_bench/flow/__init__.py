"""The flow model: straight path, velocity networks, training and checkpoints. Knows nothing of laws."""

from snapfm_bench.flow.checkpoint import (
    Checkpoint,
    default_model,
    load_checkpoint,
    round_weights,
    save_checkpoint,
    shipped,
    shipped_names,
)
from snapfm_bench.flow.evaluate import NetworkEvaluator, evaluator
from snapfm_bench.flow.frame import FrameSettings, FrameVelocity, Latent
from snapfm_bench.flow.network import FNOVelocity, NetworkSettings
from snapfm_bench.flow.presets import PRESETS, VelocityNetwork, network_of, preset
from snapfm_bench.flow.train import Training, TrainingSettings, train

__all__ = [
    "PRESETS",
    "Checkpoint",
    "FNOVelocity",
    "FrameSettings",
    "FrameVelocity",
    "Latent",
    "NetworkEvaluator",
    "NetworkSettings",
    "Training",
    "TrainingSettings",
    "VelocityNetwork",
    "default_model",
    "evaluator",
    "load_checkpoint",
    "network_of",
    "preset",
    "round_weights",
    "save_checkpoint",
    "shipped",
    "shipped_names",
    "train",
]
