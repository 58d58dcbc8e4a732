"""Kernels that become one: what a chain of them is, and what the joined kernel computes itself."""
