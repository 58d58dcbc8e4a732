"""Scheduling of kernels for GPUs."""
