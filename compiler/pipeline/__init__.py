"""The pipeline, and what drives it."""
