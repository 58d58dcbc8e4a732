"""Analyses of values, sizes and memory accesses on the block level."""
