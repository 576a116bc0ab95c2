"""The table of models' dimensions, and of GPUs' memory and speed, that comes with mpctl, and lookups in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from mpctl.estimate.shape import Shape

# GPU names in nvidia-smi, DRA's productName and publications, where they differ from the table's
# name; lower case, words joined by hyphens.
_PRODUCTS = {
    "a100": "A100-80GB-SXM",
    "a100-40gb": "A100-40GB-SXM",
    "a100-80gb": "A100-80GB-SXM",
    "tesla-a100": "A100-40GB-SXM",
    "h100-mega-80gb": "H100-SXM",
    "a100-sxm4-40gb": "A100-40GB-SXM",
    "a100-sxm4-80gb": "A100-80GB-SXM",
    "b200": "B200-SXM",
    "b200-hgx": "B200-SXM",
    "geforce-rtx-3090": "RTX-3090",
    "geforce-rtx-4090": "RTX-4090",
    "h100": "H100-SXM",
    "h100-80gb": "H100-SXM",
    "h100-80gb-hbm3": "H100-SXM",
    "h100-80gb-sxm": "H100-SXM",
    "h100-94gb": "H100-SXM-94",
    "h100-nvl": "H100-SXM-94",
    "h100-sxm5": "H100-SXM",
    "h200": "H200-SXM",
    "h200-141gb": "H200-SXM",
}


@cache
def _table() -> dict[str, Any]:
    import yaml

    text = (resources.files("mpctl.estimate") / "models.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


# Spellings of a family that has the dimensions of another, and names with and without the fine-tune's suffix.
_SAME = (("meta-llama/meta-llama-", "meta-llama/llama-"), ("meta-llama/llama-3-", "meta-llama/llama-3.1-"))
_SUFFIXES = ("-instruct", "-base", "-fp8", "-instruct-2507", "-instruct-fp8", "-awq")


@dataclass(frozen=True)
class Gpu:
    """One GPU: GiB that tools report, GB/s of its memory, dense TFLOPS; ``fp8_tflops`` None where it computes none."""

    name: str
    usable_gib: float
    bandwidth_gb_s: float
    bf16_tflops: float
    fp8_tflops: float | None = None
    nvlink: bool = False


def model_shape(name: str | None) -> Shape | None:
    """The dimensions of ``organisation/model``, matched without regard to case; None when it is not in the table.

    A model and its instruction-tuned or quantized form have the same dimensions.
    """
    wanted = (name or "").lower()
    known = {row.lower(): fields for row, fields in _table()["models"].items()}
    for old, new in _SAME:
        wanted = new + wanted.removeprefix(old) if wanted.startswith(old) else wanted
    dimensions = known.get(wanted)
    if dimensions is None:
        bare = _bare(wanted)
        dimensions = next((fields for row, fields in known.items() if _bare(row) == bare), None)
    return None if dimensions is None else Shape(**dimensions)


def _bare(name: str) -> str:
    suffix = max((ending for ending in _SUFFIXES if name.endswith(ending)), key=len, default="")
    return name.removesuffix(suffix)


def find_gpu(product: str | None) -> Gpu | None:
    """A GPU by the table's name or the product's own, with or without a remark in brackets; None when it is not in the
    table."""
    plain = (product or "").lower().partition("(")[0].strip().removeprefix("nvidia")
    wanted = "-".join(plain.replace("-", " ").split())
    wanted = _PRODUCTS.get(wanted, wanted).lower()
    for known, fields in _table()["gpus"].items():
        if known.lower() == wanted:
            return Gpu(known, **fields)
    return None


def gpu_gib(product: str | None) -> float | None:
    """Usable GiB of a GPU by the table's name or the product's own; None when it is not in the table."""
    gpu = find_gpu(product)
    return None if gpu is None else gpu.usable_gib


def gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table."""
    return tuple(_table()["gpus"])
