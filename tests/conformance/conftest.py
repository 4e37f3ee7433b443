"""One thread is fastest for arrays this small, and leaves the other cores to whoever else is running."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
