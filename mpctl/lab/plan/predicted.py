"""A rollout's prediction, stored with its plan, and what it measured: the record of how right the plan was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from mpctl.app.bench.recorded import measured_by, rollouts_of
from mpctl.app.change import Change
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Session
from mpctl.errors import MpctlError, Refused
from mpctl.json_types import Json
from mpctl.lab.payoff.grid import entry_record
from mpctl.lab.plan import service_plan
from mpctl.lab.requests import PlanRequest

_ANY = ("all",)


def predict_rollout(
    session: Session, speculation: SpeculationRequest, change: Change, concurrency: tuple[int, ...]
) -> Json | None:
    """Show and return the plan's prediction of a change before it is measured; None if the plan has no figure.

    A prediction is never in the way of a rollout: what prevents it is left to the plan to say.
    """
    if change.spec.is_none or not concurrency:
        return None
    try:
        grid = service_plan.plan_change(session, speculation, change, concurrency).grid
    except MpctlError:
        return None
    if grid is None:
        return None
    answers = [entry_record(choice.entry) for choice in grid.choices]
    last, level = answers[-1], grid.choices[-1].entry.level
    ratio = last["throughputRatio"]
    session.console.note(
        f"the plan predicts a throughput ratio of {ratio['value']:.2f} [{ratio['low']:.2f}-{ratio['high']:.2f}] at "
        f"concurrency {last['concurrency']:g} ({level}: {last['call']})"
    )
    return {"level": level, "answers": answers}


def choose_best(
    session: Session, speculation: SpeculationRequest, concurrency: tuple[int, ...]
) -> SpeculationRequest:
    """Show and return the change with the plan's best method and K at the highest concurrency, for ``--spec auto``.

    Raises:
        Refused: no method has a figure and passes the preflight, or none is predicted to gain.
    """
    plan = service_plan.run(
        session, PlanRequest(_ANY, replace(speculation, method=""), concurrency or (1,))
    )
    best = plan.best
    if best is None or best.last is None or best.change is None:
        reasons = "; ".join(
            f"{method.method}: {method.refusal.reason}" for method in plan.methods if method.refusal
        )
        raise Refused(
            f"{session.title}: the plan has no figure for any method ({reasons or 'each is refused by the preflight'})",
            hint=f"{session.command('plan', '--spec', 'all')} says what is missing; or name a method with --spec",
        )
    ratio = best.last.entry.prediction.throughput
    if ratio.value <= 1:
        raise Refused(
            f"{session.title}: the best method, {best.method}, is predicted to lose (throughput ratio {ratio.text()})",
            hint=f"--spec {best.method} measures it all the same",
        )
    settings = speculation.settings
    fixed = best.change.spec.k is not None
    if fixed and not any(text.startswith("num_speculative_tokens=") for text in settings):
        settings = (*settings, f"num_speculative_tokens={best.last.k}")
    session.console.note(
        f"auto: {' '.join((best.method, *settings))}, predicted throughput ratio {ratio.text()}"
    )
    return replace(speculation, method=best.method, settings=settings)


@dataclass(frozen=True)
class CheckedPrediction:
    """A ratio of a rollout: predicted with its band, measured with its interval."""

    operation: str
    spec: str
    concurrency: float
    level: str
    ratio: str
    predicted: dict[str, float]
    measured: float
    ending: str

    @property
    def inside(self) -> bool:
        """Return whether the measured ratio lies in the predicted band."""
        return self.predicted["low"] <= self.measured <= self.predicted["high"]

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return abs(self.predicted["value"] / self.measured - 1)

    def to_record(self) -> Json:
        """A JSON object."""
        figures = {
            "measured": round(self.measured, 4),
            "insideTheBand": self.inside,
            "error": round(self.error, 4),
        }
        return {**self.__dict__, **figures}


@dataclass(frozen=True)
class PredictionRecord:
    """All of a service, the oldest first. ``without``: rollouts that measured and had no prediction."""

    service: str
    checked: tuple[CheckedPrediction, ...]
    without: tuple[str, ...]

    def to_record(self) -> Json:
        """A JSON object."""
        return {
            "service": self.service,
            "history": [prediction.to_record() for prediction in self.checked],
            "withoutPrediction": list(self.without),
            "inside": sum(prediction.inside for prediction in self.checked),
            "medianError": round(median(prediction.error for prediction in self.checked), 4)
            if self.checked
            else None,
        }


def read_record(session: Session) -> PredictionRecord:
    """Compare predictions with measurements over all rollouts of a service."""
    checked: list[CheckedPrediction] = []
    without = []
    for operation in rollouts_of(session):
        source = measured_by(session, operation)
        if source is None or not source.run.blocks:
            continue
        prediction = operation.plan.prediction
        if prediction is None:
            without.append(operation.id)
            continue
        answers = {row["concurrency"]: row for row in prediction["answers"]}
        ending = operation.ending.value if operation.ending else "unfinished"
        for cell in source.judge()[0].cells:
            answer = answers.get(float(cell.cell.concurrency))
            for name, key, interval in (
                ("throughput", "throughputRatio", cell.throughput_ratio),
                ("time per token", "timePerTokenRatio", cell.time_per_token_ratio),
            ):
                if answer is not None and interval is not None and interval.value:
                    checked.append(
                        CheckedPrediction(
                            operation.id,
                            operation.plan.spec_text,
                            float(cell.cell.concurrency),
                            answer["level"],
                            name,
                            answer[key],
                            interval.value,
                            ending,
                        )
                    )
    return PredictionRecord(f"{session.namespace}/{session.name}", tuple(checked), tuple(without))
