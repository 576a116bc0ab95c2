"""The annexes: parts of mpctl that the core never imports. Each joins by name, and may be absent.

``lab`` predicts gains and divides traffic into variants; ``local`` runs services as
processes of this machine; ``evidence`` signs verdicts, verifies them and exports operations. A command of an annex is a
row of the registry (``mpctl/cli/registry.py``); what else the core asks of one is a row of ``HOOKS``. An installation
from which the folder of an annex was deleted works without what the annex adds.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mpctl.errors import InputError

# name -> module and function
HOOKS = {
    "plan": "mpctl.lab.plan.service_plan:run_request",
    "predict": "mpctl.lab.plan.service_plan:predict_rollout",
    "with-variants": "mpctl.lab.variants:with_variants",
    "choose-method": "mpctl.lab.plan.service_plan:choose_best",
    "compare-foreign": "mpctl.lab.commands.foreign:compare_foreign",
    "open-local": "mpctl.local.session:open_local",
    "local-sessions": "mpctl.local.session:local_sessions",
    "orphans": "mpctl.local.processes:find_orphans",
    "installed-engine": "mpctl.local.engine:installed_version",
    "require-signer": "mpctl.evidence.bundle:require_signer",
    "sign-promoted": "mpctl.evidence.bundle:attest_promoted",
    "sign": "mpctl.evidence.bundle:make_bundle",
    "export": "mpctl.evidence.telemetry:export",
}


def find(name: str) -> Callable[..., Any] | None:
    """The function behind a hook; None where its annex is not part of this installation."""
    module, _, function = HOOKS[name].partition(":")
    hook: Callable[..., Any] | None = (
        getattr(import_module(module), function) if is_installed(module) else None
    )
    return hook


def need(name: str) -> Callable[..., Any]:
    """The function behind a hook.

    Raises:
        InputError: its annex is not part of this installation.
    """
    hook = find(name)
    if hook is None:
        raise absent(HOOKS[name])
    return hook


def is_installed(module: str) -> bool:
    """Whether the folder that a module belongs to is part of this installation."""
    return find_spec(".".join(module.split(".")[:2])) is not None


def absent(module: str) -> InputError:
    """The error for a module of an annex that is not part of this installation."""
    folder = "/".join(module.split(".")[:2])
    return InputError(
        f"{folder} is not part of this installation", hint="install the whole mpctl package"
    )
