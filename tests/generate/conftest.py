"""A model and a file of its samples for all tests; one thread, because torch's threads spin where others work too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.generate.tiny import recipe, write_model

from snapfm.generate import generate


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("neuralop")
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="package")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """The file of the plain recipe, drawn without a stop."""
    pytest.importorskip("zarr")
    return generate(recipe(model), tmp_path_factory.mktemp("files") / "whole.zarr").written.path
