"""What is known before anything is touched."""

from mpctl.plan.facts import ModelFacts, describe_model, facts_of

__all__ = ["ModelFacts", "describe_model", "facts_of"]
