"""From an encoder to a static table of token vectors."""
