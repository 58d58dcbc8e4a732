"""Scheduling of kernels for CPUs: register tiles, vector lanes, panel packing, and their cost."""
