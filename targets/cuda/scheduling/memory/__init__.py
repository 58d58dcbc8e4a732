"""Schedule rules for kernels that memory bounds: copies that turn dims, and sums of few parts."""
