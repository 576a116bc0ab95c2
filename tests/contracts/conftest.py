"""The programs of Prometheus and the rules, as in tests/autoscaling, and mpctl on this machine, as in tests/local."""

from tests.autoscaling.conftest import prometheus, rules_file
from tests.local.conftest import mpctl

__all__ = ["mpctl", "prometheus", "rules_file"]
