"""Machine code in this process. Nothing here needs LLVM.

Memory is first written and then made executable, never both at the same time.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any, NamedTuple

from targets.interface import TargetError


class Image(NamedTuple):
    """Machine code that runs at whatever address it is copied to (made by `image.py`).

    `entry`: the position of the function to be called. `slots`: for each C library function, the
    position at which its 8-byte address must be written first.
    """

    code: bytes
    entry: int
    slots: dict[str, int]


class Library(NamedTuple):
    """Code that can be called as long as this object lives. `keeps`: the owner of its memory.

    `image`: the image that it was loaded from, if there is one."""

    keeps: Any
    address: int
    image: Image | None = None


def load_image(image: Image) -> Library:
    """Copy an image into executable memory. Raises TargetError if the system does not allow that.
    """
    memory = mmap.mmap(-1, max(len(image.code), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                       prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory[: len(image.code)] = image.code
    for name, place in image.slots.items():
        memory[place: place + 8] = function_address(name).to_bytes(8, "little")
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    size = -(-len(memory) // mmap.PAGESIZE) * mmap.PAGESIZE
    protect = process().mprotect
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
        raise TargetError("the system does not allow code generated at run time (mprotect)")
    return Library(memory, address + image.entry, image)


@cache
def process() -> Any:
    """The functions of this process's C library."""
    return ctypes.CDLL(None, use_errno=True)


def function_address(name: str) -> int:
    """The address of a C function. Raises TargetError if there is none of that name."""
    for library in (None, "libm.so.6"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except (AttributeError, OSError):
            continue
    raise TargetError(f"the C library has no function {name}, which the compiled model calls")
