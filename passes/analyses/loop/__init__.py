"""Questions about nests and kernels."""
