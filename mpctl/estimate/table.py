"""The table of models' dimensions and GPUs' memory that comes with mpctl, and lookups in it."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from mpctl.estimate.shape import Shape

# How GPUs name themselves (nvidia-smi, DRA's productName) where that is not the table's name.
_PRODUCTS = {
    "h100 80gb hbm3": "H100-SXM",
    "h100 pcie": "H100-PCIe",
    "h100 nvl": "H100-SXM-94",
    "h200": "H200-SXM",
    "b200": "B200-SXM",
    "a100-sxm4-40gb": "A100-40GB-SXM",
    "a100-sxm4-80gb": "A100-80GB-SXM",
    "a100 80gb pcie": "A100-80GB-PCIe",
}


@cache
def _table() -> dict[str, Any]:
    import yaml

    text = (resources.files("mpctl.estimate") / "models.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def model_shape(name: str | None) -> Shape | None:
    """The dimensions of ``organisation/model``, matched without regard to case; None when it is not in the table."""
    wanted = (name or "").lower()
    for known, fields in _table()["models"].items():
        if known.lower() == wanted:
            return Shape(**fields)
    return None


def gpu_gib(product: str | None) -> float | None:
    """Usable GiB of a GPU by the table's name or the product's own; None when it is not in the table."""
    wanted = (product or "").lower().removeprefix("nvidia ").strip()
    wanted = _PRODUCTS.get(wanted, wanted).lower()
    for known, fields in _table()["gpus"].items():
        if known.lower() == wanted:
            return float(fields["usable_gib"])
    return None


def gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table."""
    return tuple(_table()["gpus"])
