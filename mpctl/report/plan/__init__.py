"""A plan rendered: one page as a value, and its formats."""
