"""What runs a compiled model: memory, threads, calls and their checks."""
