"""English, the only language shipped."""
