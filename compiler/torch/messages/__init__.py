"""What users are told of what became of their program, in PyTorch's logs and in ours."""
