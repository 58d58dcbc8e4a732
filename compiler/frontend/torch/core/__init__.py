"""Programs in Core ATen: decomposed, but for operators with an importer, and without mutations."""
