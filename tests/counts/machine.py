"""The processor that is counted for: the same one wherever the counting runs.

Schedules follow a processor's caches and cores, and code its features. A feature set that a user
names limits only the features. So the whole machine is a fixed one here.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import llvmlite.binding as llvm

from targets.cpu import machine as facts

_NAMED = facts.FEATURE_SETS["avx512"]
SERVER = facts.Machine(
    cpu=_NAMED.cpu, attributes=_NAMED.attributes, features=_NAMED.features,
    triple="x86_64-unknown-linux-gnu", caches=(48 << 10, 2 << 20, 32 << 20), cores=8)
"""A server of eight cores with 48 KiB, 2 MiB and 32 MiB of cache."""


@contextmanager
def server() -> Iterator[None]:
    """Inside, the CPU target compiles for `SERVER`, restricted to the feature set of its options.
    """
    with patch.multiple(facts, _host=lambda: SERVER, assumed_features=lambda: None):
        yield


def has_assembler() -> bool:
    """Whether LLVM makes x86-64 assembly for Linux here."""
    return platform.system() == "Linux" and platform.machine().lower() in ("x86_64", "amd64")


def llvm_version() -> str:
    """Of the code generator, on which the instructions depend."""
    version: tuple[int, ...] = getattr(llvm, "llvm_version_info")  # noqa: B009
    return ".".join(map(str, version))
