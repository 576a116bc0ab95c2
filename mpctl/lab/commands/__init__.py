"""Commands of the annex."""
