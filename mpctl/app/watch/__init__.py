"""Watch services after the rollout."""
