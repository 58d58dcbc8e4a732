"""Arrays, files and signatures at a model's boundary."""
