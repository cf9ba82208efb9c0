"""A model and a file of its samples for all tests."""

from pathlib import Path

import pytest
from bench.tests.files.tiny import recipe, write_model

from snapfm.files import generate


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("neuralop")
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="package")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the plain recipe, drawn without a stop."""
    pytest.importorskip("zarr")
    return generate(recipe(model), tmp_path_factory.mktemp("files") / "whole.zarr").written.path
