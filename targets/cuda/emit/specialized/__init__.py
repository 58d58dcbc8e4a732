"""Warp-specialized kernels: a producer warp copies tiles while consumer warps compute."""
