"""Commands set the number of torch's threads for their process; here the process is that of all tests."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
