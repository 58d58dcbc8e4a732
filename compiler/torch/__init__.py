"""`torch.compile` with Strata."""
