"""The pipeline and its driver."""
