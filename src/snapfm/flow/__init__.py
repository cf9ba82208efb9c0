"""The flow model: straight path, FNO velocity network, training and checkpoints. Knows nothing of laws."""

from snapfm.flow.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from snapfm.flow.evaluate import Evaluator, evaluator
from snapfm.flow.network import FNOVelocity, NetworkSettings
from snapfm.flow.presets import PRESETS, preset
from snapfm.flow.shipped import shipped, shipped_names
from snapfm.flow.train import Training, TrainingSettings, train

__all__ = [
    "PRESETS",
    "Checkpoint",
    "Evaluator",
    "FNOVelocity",
    "NetworkSettings",
    "Training",
    "TrainingSettings",
    "evaluator",
    "load_checkpoint",
    "preset",
    "save_checkpoint",
    "shipped",
    "shipped_names",
    "train",
]
