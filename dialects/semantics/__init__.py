"""What NumPy says an operation means: shared by every `evaluate`."""
