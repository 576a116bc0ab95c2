"""What rollouts of a service measured, and what had been predicted: the record of how right the plan was."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from mpctl.app.bench.recorded import measured_by, rollouts_of
from mpctl.app.session.base import Session
from mpctl.json_types import Json


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
        # A prediction is of requests in flight; at a rate their number is not given.
        for cell in (each for each in source.judge()[0].cells if each.cell.rate is None):
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
