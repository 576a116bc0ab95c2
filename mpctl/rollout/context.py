"""Everything outside that an operation touches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpctl import commands
from mpctl.experiment.answers import BaselineAnswers
from mpctl.experiment.cell import Cell
from mpctl.experiment.prompt_files import Prompt, built_in_prompts
from mpctl.experiment.round_answers import RoundAnswers
from mpctl.rollout.ports import Clock, Engines, Meter, Platform, Progress, Router, Scaler, Store


@dataclass(frozen=True)
class Context:
    """Everything outside that an operation touches, and who asks for it. ``prompts``: those that the command was given,
    by class of traffic, since no record keeps them."""

    platform: Platform
    store: Store
    meter: Meter
    clock: Clock
    progress: Progress
    who: str
    prompts: Mapping[str, tuple[Prompt, ...]] = field(default_factory=dict)
    answers: dict[str, BaselineAnswers] = field(default_factory=dict)  # of a baseline, by operation
    round_answers: dict[str, RoundAnswers] = field(default_factory=dict)  # by operation
    warm: set[tuple[Cell, str, str]] = field(default_factory=set)  # arms, as ArmEngines has them
    service: str = ""
    namespace: str = ""

    def command(self, verb: str, *options: str) -> str:
        """A command on the service, as messages print it."""
        return commands.line(verb, self.service, *options, namespace=self.namespace)

    def prompts_of(self, name: str) -> tuple[Prompt, ...] | None:
        """Prompts of a class: those that the command was given, else the built-in set of that name."""
        if name in self.prompts:
            return self.prompts[name]
        built_in = built_in_prompts(name)
        return None if built_in is None else built_in[0]

    @property
    def engines(self) -> Engines:
        """The engines of the service, by arm."""
        return self.platform.engines

    @property
    def scaler(self) -> Scaler:
        """The scaler of a platform that gave the plan its ``scaling``."""
        assert self.platform.scaler is not None
        return self.platform.scaler

    @property
    def router(self) -> Router:
        """The router of a platform that gave the plan its ``route``."""
        assert self.platform.router is not None
        return self.platform.router
