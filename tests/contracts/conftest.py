"""The programs of Prometheus and the rules, as in tests/autoscaling."""

from tests.autoscaling.conftest import prometheus, rules_file

__all__ = ["prometheus", "rules_file"]
