"""Package data: the presets, in presets.toml."""
