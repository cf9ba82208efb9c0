"""The flow model: straight path, velocity networks, training and checkpoints. Knows nothing of laws."""

from snapfm.flow.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, shipped, shipped_names
from snapfm.flow.evaluate import Evaluator, evaluator
from snapfm.flow.frame import FrameSettings, FrameVelocity
from snapfm.flow.network import FNOVelocity, NetworkSettings
from snapfm.flow.presets import PRESETS, VelocityNetwork, network_of, preset
from snapfm.flow.train import Training, TrainingSettings, train

__all__ = [
    "PRESETS",
    "Checkpoint",
    "Evaluator",
    "FNOVelocity",
    "FrameSettings",
    "FrameVelocity",
    "NetworkSettings",
    "Training",
    "TrainingSettings",
    "VelocityNetwork",
    "evaluator",
    "load_checkpoint",
    "network_of",
    "preset",
    "save_checkpoint",
    "shipped",
    "shipped_names",
    "train",
]
