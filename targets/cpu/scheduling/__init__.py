"""How kernels are scheduled for CPUs: tiles, lanes, panels, and what they cost."""
