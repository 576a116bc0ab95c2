"""NumPy and SciPy, imported at their first use: together they take longer to import than most commands run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["Bools", "Floats", "fft", "np", "special"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy import fft, special
else:

    class _Library:
        """A module that is imported when an attribute is first read."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(import_module(self._name), attribute)
            setattr(self, attribute, value)
            return value

    np, fft, special = map(_Library, ("numpy", "scipy.fft", "scipy.special"))

Bools: TypeAlias = "NDArray[np.bool_]"
Floats: TypeAlias = "NDArray[np.float64]"
