"""Passes that join kernels with those that compute what they read."""
