"""Lines of a user's program in texts of stacks, as exporters and PyTorch's graphs keep them."""

from __future__ import annotations

import re
from functools import lru_cache

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\s*\n\s*(.*)')


@lru_cache(1024)
def line_of(trace: str) -> str:
    """The innermost line outside of torch itself in the text of a stack; empty without any."""
    frames: list[tuple[str, str, str, str]] = _FRAME.findall(trace)
    own = [f for f in frames if not re.search(r"[/\\]torch[/\\]|^<", f[0])] or frames
    if not own:
        return ""
    file, line, function, code = own[-1]
    function = re.sub(r"^torch_dynamo_resume_in_(.+)_at_\d+$", r"\1", function)
    return f"{file}:{line} in {function}: {code.strip()}"
