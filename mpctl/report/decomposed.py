"""The title of a decomposition."""

from __future__ import annotations

from mpctl import formatting
from mpctl.gate.decomposition import Decomposition


def title_of(decomposition: Decomposition) -> str:
    """Return ``Why 2.44x and not 4.27x``."""
    measured, promised = formatting.ratio(decomposition.throughput_ratio), formatting.ratio(decomposition.promised)
    if decomposition.throughput_ratio < decomposition.promised:
        return f"Why {measured} and not {promised}"
    return f"Why {measured}, where the drafts promise {promised}"
