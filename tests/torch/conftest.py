"""Tests of the PyTorch frontend need PyTorch: `make test TORCH=1` installs it."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
