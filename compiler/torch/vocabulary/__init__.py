"""What modes, options, switches and debug variables of PyTorch's compiler mean here."""
