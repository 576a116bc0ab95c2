"""Fits the constants of the payoff model to published measurements, and says how well it predicts a system it has not
seen. Deterministic: the same table gives the same file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from mpctl.lab.payoff.published_evidence import Posterior
from mpctl.lab.payoff.roofline import Drafting, Ratios, Serving, ratios
from mpctl.lab.payoff.scenario import drafting_of, family_of, serving_of
from scripts.payoff.rows import Row, author_of, read, select

Vector = NDArray[np.float64]
FILE = Path(__file__).parents[2] / "mpctl" / "lab" / "payoff" / "constants.json"

# Name: (typical value, standard deviation of its logarithm) before the data.
PRIORS = {
    "eb": (0.83, 0.05),
    "ec": (0.65, 0.20),
    "kv": (1.3, 0.4),
    "p": (2.0, 0.25),
    "ov": (0.2, 0.7),
    "t0": (1.0, 0.4),
    "treq": (0.01, 0.8),
    "od": (0.15, 0.7),
    "od_old": (0.50, 0.4),
    "ol": (0.045, 0.25),
    "e0": (0.7, 0.5),
    "ng": (0.3, 0.6),
    "sync": (
        1.2,
        0.5,
    ),  # outside the forward pass (SpecDecode-Bench's simulator, before asynchronous scheduling)
    "ngB": (0.02, 1.2),
    "mpf": (1.0, 0.5),
    "pool": (1.5, 0.4),
    "rho": (0.6, 0.3),
    "tail": (0.97, 0.015),
    "kt": (2.0, 0.5),
    "wave": (1.0, 0.2),
    "link": (20.0, 0.5),
    "lat": (0.02, 0.5),
}
NAMES = tuple(PRIORS)
_MOST_ROWS = 12.0  # that a system counts for, however long it is
_NOISE = {"tpot": 0.07, "time": 0.04, "throughput": 0.06, "shape": 0.08, "stated": 0.10}
_CENTRE = np.log([PRIORS[name][0] for name in NAMES])
_SPREAD = np.array([PRIORS[name][1] for name in NAMES])


@dataclass(frozen=True)
class Problem:
    """All rows as arrays."""

    rows: tuple[Row, ...]
    serving: Serving
    drafting: Drafting
    weight: Vector

    def answers(self, logs: Vector) -> Ratios:
        """Ratios of every row under constants given by their logarithms. A row with an anchor gets the acceptance
        that the anchor implies."""
        constants = dict(zip(NAMES, np.exp(logs), strict=True))
        drafting = self.drafting
        anchor = np.array([row.anchor or 0.0 for row in self.rows])
        if anchor.any():
            single = dataclasses.replace(self.serving, concurrency=np.ones(len(self.rows)))
            plain = dataclasses.replace(drafting, tokens_per_step=np.ones(len(self.rows)))
            implied = anchor * ratios(single, plain, constants).time_per_token
            known = np.asarray(drafting.tokens_per_step)
            drafting = dataclasses.replace(
                drafting, tokens_per_step=np.where(anchor > 0, implied, known)
            )
        return ratios(self.serving, drafting, constants)


def problem_of(rows: Sequence[Row]) -> Problem:
    """Stack the rows that are fitted; a system counts for at most twelve."""
    rows = [row for row in rows if row.fitted]
    size = Counter(row.system for row in rows)
    weight = np.sqrt([min(1.0, _MOST_ROWS / size[row.system]) for row in rows])
    servings = [serving_of(row.cell) for row in rows]
    draftings = [drafting_of(row.cell) for row in rows]
    return Problem(tuple(rows), _stack(Serving, servings), _stack(Drafting, draftings), weight)


def _stack(kind: type[Any], values: Sequence[Any]) -> Any:
    names = [f.name for f in dataclasses.fields(kind)]
    return kind(
        **{
            name: np.array([float(getattr(instance, name)) for instance in values])
            for name in names
        }
    )


def residuals(logs: Vector, problem: Problem) -> Vector:
    """Weighted logarithmic errors of the rows, then the distance from the priors."""
    got = problem.answers(logs)
    parts = []
    for index, row in enumerate(problem.rows):
        weight = problem.weight[index]
        noise = (
            _NOISE["stated"] if row.uncertain else _NOISE["shape"] if row.anchor else _NOISE["time"]
        )
        if row.base_tpot_ms is not None:
            parts.append(
                weight * np.log(got.baseline.tpot_ms[index] / row.base_tpot_ms) / _NOISE["tpot"]
            )
        if row.time_per_token is not None:
            parts.append(weight * np.log(got.time_per_token[index] / row.time_per_token) / noise)
        if row.throughput is not None:
            noise = _NOISE["shape"] if row.anchor else _NOISE["throughput"]
            parts.append(weight * np.log(got.throughput[index] / row.throughput) / noise)
    return np.concatenate([parts, (logs - _CENTRE) / _SPREAD])


def fit(problem: Problem, start: Vector | None = None) -> tuple[Vector, Vector]:
    """Logarithms of the constants, and their covariance (Laplace)."""
    solved = least_squares(
        residuals,
        _CENTRE if start is None else start,
        args=(problem,),
        loss="soft_l1",
        x_scale=_SPREAD,
        xtol=1e-9,
    )
    information = solved.jac.T @ solved.jac
    return solved.x, np.linalg.inv(information)


def document(rows: Sequence[Row], logs: Vector, covariance: Vector) -> dict[str, Any]:
    """Contents of the file: every figure to five digits, so that machines agree."""
    deviation = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviation, deviation)
    return {
        "version": 1,
        "fitted_by": "scripts/fit-payoff",
        "constants": {
            name: {
                "value": _short(np.exp(logs[i])),
                "factor": _short(np.exp(deviation[i])),
                "prior": PRIORS[name][0],
            }
            for i, name in enumerate(NAMES)
        },
        "correlation": [
            [round(float(v), 3) for v in line[: i + 1]] for i, line in enumerate(correlation)
        ],
        "rows": _ranges([row.id for row in rows if row.fitted]),
        "gpus": _gpus(rows),
        "by_author": dict(
            Counter(author_of(row.source) for row in rows if row.fitted).most_common()
        ),
    }


def _gpus(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The GPUs of the fitted rows, by the kind of method that they ran."""
    pairs = {(family_of(row.cell.method), row.cell.gpu.name) for row in rows if row.fitted}
    return {
        family: sorted(gpu for kind, gpu in pairs if kind == family)
        for family in sorted({kind for kind, _ in pairs})
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _ranges(ids: Sequence[str]) -> dict[str, str]:
    """Row numbers per set: ``1-12, 14``."""
    sets: dict[str, list[int]] = {}
    for row_id in ids:
        name, _, number = row_id.rpartition("-")
        sets.setdefault(name, []).append(int(number))
    return {name: _spans(numbers) for name, numbers in sets.items()}


def _spans(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def main() -> int:
    """Fit, write or check the file, print accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the file instead of writing it"
    )
    parser.add_argument(
        "--excluded", action="store_true", help="list the rows that are left out, with the reason"
    )
    options = parser.parse_args()
    rows, reasons = select(read())
    if options.excluded:
        for name, reason in reasons.items():
            print(f"{name}\t{reason}")
        return 0
    made = _made(rows)
    print(
        f"{len(rows)} rows fitted or predicted, {len(reasons)} left out (--excluded lists them with the reason)"
    )
    for name, row in made["constants"].items():
        print(f"  {name:7} {row['value']:>9} x/÷ {row['factor']}")
    text = json.dumps(made, indent=1) + "\n"
    if options.check:
        same = FILE.read_text(encoding="utf-8") == text
        print("the file is up to date" if same else f"{FILE.name} differs from a fresh fit")
        return 0 if same else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


def _made(rows: Sequence[Row]) -> dict[str, Any]:
    """Contents of the file with the accuracy of fits that have not seen what they predict, which is printed."""
    from scripts.payoff.accuracy import (
        LEVELS,
        classes_without,
        least_load_error,
        leave_one_out,
        predicted,
        ranking,
        report,
    )

    records = read()
    logs, covariance = fit(problem_of(rows))
    made = document(rows, logs, covariance)
    sources = leave_one_out(rows, records, lambda row: row.source, logs)
    systems = leave_one_out(rows, records, lambda row: row.system, logs)
    made["load_error"] = error = least_load_error(sources)
    whole = Posterior(
        NAMES, tuple(map(float, logs)), tuple(tuple(map(float, line)) for line in covariance), error
    )
    made["classes"] = classes_without(set(), rows, records, whole)
    judged = {"one_system_left_out": predicted(systems, error)}
    judged |= {name: predicted(sources, error, known) for name, known in LEVELS.items()}
    for name, accuracy in judged.items():
        print(report(name.replace("_", " "), accuracy))
    made["accuracy"] = {name: accuracy.record() for name, accuracy in judged.items()}
    made["ranking"] = ranking(sources)
    print("ranking of methods, no pool:", made["ranking"])
    return made


if __name__ == "__main__":
    sys.exit(main())
