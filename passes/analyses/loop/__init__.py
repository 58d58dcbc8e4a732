"""Analyses of nests and kernels."""
