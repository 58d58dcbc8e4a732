"""The launcher that has started the ranks of a program, such as torchrun, and how it is told of a
fault. Nothing here imports anything heavy, because every error of a command comes by."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress


def rank_text() -> str:
    """` on rank 1` in a process of torchrun; otherwise empty."""
    return f" on rank {os.environ['RANK']}" if int(os.environ.get("WORLD_SIZE", "1")) > 1 and (
        "RANK" in os.environ) else ""


def tell_launcher(message: str) -> None:
    """Leave a fault where torchrun looks for it, so that its own report ends with it."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        told = {"message": message, "extraInfo": {"timestamp": str(int(time.time()))}}
        with suppress(OSError), open(path, "w", encoding="utf-8") as file:
            json.dump({"message": told}, file)
