"""Errors of the CUDA target that the user can fix."""

from __future__ import annotations

from targets.interface import TargetError


class CudaError(TargetError, ValueError):
    """A problem with the machine, the options or the inputs, and what to do about it."""


class DeviceMemoryError(CudaError):
    """The device's memory is full."""


class EmitError(CudaError):
    """A block kernel without a form in Triton: why, and what to do about it."""
