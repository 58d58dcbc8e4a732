"""What each ONNX operator takes, and what it requires of symbolic dims: a file for each family."""
