"""The title of a decomposition."""

from __future__ import annotations

from mpctl import formatting
from mpctl.gate.decomposition import Decomposition


def title_of(found: Decomposition) -> str:
    """Return ``Why 2.44x and not 4.27x``."""
    measured, promised = formatting.ratio(found.throughput_ratio), formatting.ratio(found.promised)
    if found.throughput_ratio < found.promised:
        return f"Why {measured} and not {promised}"
    return f"Why {measured}, where the drafts promise {promised}"
