"""Trains a small language model with Strata: `python -m examples.training`."""
