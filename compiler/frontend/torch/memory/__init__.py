"""Where elements of PyTorch's tensors lie: the order of dims in memory, and places by strides."""
