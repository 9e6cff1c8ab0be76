"""How instants are written where no page has a pattern of its own, language by language."""
