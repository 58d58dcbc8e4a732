"""What tests of Dynamo's world share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def natively(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing runs eagerly; no gradients are recorded."""
    import torch  # the folder is collected without it, and then skipped

    torch._dynamo.reset()
    torch.manual_seed(0)
    caplog.set_level(logging.WARNING, "strata")
    with torch.no_grad():
        yield
    assert not [r for r in caplog.records if r.name == "strata"]
