"""Errors of the CUDA target that the user can mend."""

from __future__ import annotations

from targets.base import TargetError


class CudaError(TargetError, ValueError):
    """What is wrong with the machine, the options or the inputs, and what to do."""


class DeviceMemoryError(CudaError):
    """The device's memory is full."""


class EmitError(CudaError):
    """A block kernel that has no form in Triton: what is wrong and what to do."""
