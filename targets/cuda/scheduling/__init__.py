"""How kernels are scheduled for GPUs."""
