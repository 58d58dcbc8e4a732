"""Kernels with warp specialization: producer warps copy tiles while others compute."""
