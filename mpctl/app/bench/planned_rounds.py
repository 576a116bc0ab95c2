"""Planned rounds of a measurement, and the gains that it can detect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from secrets import token_hex

from mpctl import formatting
from mpctl.app.bench.recorded import finished_runs
from mpctl.app.requests import MeasurementRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.block import BASELINE, CANDIDATE, BlockError
from mpctl.experiment.counters import CounterError
from mpctl.experiment.workload import Workload
from mpctl.gate.analysis import Analysis, ArmOrder
from mpctl.gate.policy import Policy
from mpctl.gate.power import (
    USUAL_GAIN,
    MeasurementNoise,
    describe_power,
    least_gain,
    most_rounds,
    power_warning,
    rounds_to_detect,
)
from mpctl.rollout.ledger import Entry
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Endpoint, LoadOrder, Meter
from mpctl.rollout.steps.measure import stored_workload

CALIBRATION_ROUNDS = 2
LEAST_ROUNDS = 5  # of an earlier measurement whose noise is used


def plan_rounds(
    request: MeasurementRequest,
    workload: Workload,
    policy: Policy,
    noise: MeasurementNoise | None,
    calibrate: Callable[[], MeasurementNoise],
    order: ArmOrder = ArmOrder.SIDE_BY_SIDE,
) -> tuple[Workload, str]:
    """Return the workload with the rounds that find the gain asked for, and a sentence on its power; that is empty
    where nothing is known, or where the plan will do.

    ``noise``: of an earlier measurement; without one ``calibrate`` measures it where a gain is asked for. ``order``:
    that of the arms in the planned measurement.

    Raises:
        InputError: the prompts do not allow so many rounds; the message names what is reachable.
    """
    gain = request.detect
    if gain is None:
        warning = power_warning(noise, workload, policy, order) if noise is not None else ""
        hint = f"; --detect {formatting.share(USUAL_GAIN, 0)} plans as many rounds as it takes"
        return workload, warning and warning + hint
    noise = noise or calibrate()
    rounds = rounds_to_detect(noise, workload, policy, gain, order)
    if rounds is not None:
        workload = replace(workload, repeats=rounds)
        return workload, describe_power(noise, workload, policy, gain, order)
    most = most_rounds(workload)
    within = least_gain(noise, replace(workload, repeats=most), policy, order) if most > 0 else None
    reachable = "no gain is" if within is None else f"{formatting.share(within, 0)} is"
    raise InputError(
        f"{formatting.share(gain, 0)} is out of reach of {most} rounds of {workload.per_round} prompts, as many as are "
        f"distinct, at the noise of {noise.source}; {reachable} within reach",
        field="--detect",
        hint="add prompts with --prompts NAME=FILE"
        + ("" if within is None else f", or ask for --detect {formatting.share(within, 0)}"),
    )


def recorded_noise(
    session: Session, entries: Iterable[Entry] | None = None
) -> MeasurementNoise | None:
    """The noise of the service's last rollout that measured five rounds or more; None without one, or where its
    records cannot be read. ``entries``: the ledger, where it was read."""
    for operation, finished in finished_runs(session, entries):
        if (finished.rounds or 0) >= LEAST_ROUNDS:
            return MeasurementNoise.of(finished.judge()[0], operation.id)
    return None


def calibration_noise(
    meter: Meter, endpoint: Endpoint, workload: Workload, policy: Policy
) -> MeasurementNoise:
    """Measure the noise on one engine that plays both arms, for two rounds. It gets the last prompts of each class,
    which a measurement seldom reaches.

    Raises:
        MpctlError: the engine cannot be measured.
    """
    blocks = []
    for repeat in range(CALIBRATION_ROUNDS):
        for cell in workload.cells:
            size = workload.requests_of(cell)
            prompts = workload.traffic_of(cell).prompts[::-1][repeat * size :][:size]
            for arm in (BASELINE, CANDIDATE):
                sent = meter.send(
                    endpoint, LoadOrder(prompts, cell, workload.max_tokens, salt=token_hex(16))
                )
                try:
                    blocks.append(sent.block(cell, arm=arm, repeat=repeat, prompts=prompts))
                except (BlockError, CounterError) as error:
                    raise MpctlError(
                        f"the noise of the serving engine cannot be measured: {error}",
                        hint="give --repeats in place of --detect",
                    ) from error
    noise = MeasurementNoise.of(
        Analysis.of(blocks, policy), f"{CALIBRATION_ROUNDS} calibration rounds"
    )
    if noise is None:
        raise MpctlError(
            "the calibration rounds have no figures: no request was answered",
            hint="give --repeats in place of --detect",
        )
    return noise


def with_unfinished_rounds(workload: Workload, session: Session, unfinished: Operation) -> Workload:
    """The workload with as many rounds as the unfinished rollout planned for the same requests."""
    stored = stored_workload(session.store, unfinished)
    if stored is None:
        return workload
    same = replace(workload, repeats=stored.repeats)
    return same if same.digest() == stored.digest() else workload
