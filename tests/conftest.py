import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread_and_no_global_state():
    """One thread a worker; the default dtype and the global generator are left as they were."""
    torch.set_num_threads(1)
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    yield
    torch.set_rng_state(state)
    torch.set_default_dtype(dtype)
