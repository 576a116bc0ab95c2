"""Use cases of ``mpctl bench``: measure, and compare finished measurements."""
