"""Untimed requests before the rounds: they rule out failures, and warm the arms up until their speed is level.

Engines that users load get none.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from mpctl.experiment.answers import Ask
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.prompt_files import Prompt, body_of
from mpctl.experiment.run import times_of_both
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.rule import more_to_pass
from mpctl.rollout.arm_engines import ArmEngines
from mpctl.rollout.measurement_records import BURST, MeasurementRecords
from mpctl.stats.confidence import trend_of
from mpctl.stats.sequential import FIRST_LOOK

_CONCURRENCY = 8  # requests in flight, at least
_MAX_TOKENS = 32  # of an answer, at most
_MOST_REQUESTS = 200  # to an arm, if some of them fail
_WAVES = 5  # of requests that begin together, the last of which show whether an arm still warms up
_TREND = 0.03  # significance level of that test
_LARGE = 0.9  # of the baseline's time: from here on, blocks of one prompt probably decide sooner


def send_bursts(engines: ArmEngines, arms: tuple[str, ...]) -> None:
    """Send untimed requests until failures can be ruled out by the first analysis that decides, or until so many
    failed that rounds have to show it; and until the arms' speed is level, for an engine that still warms up looks
    slower than it is."""
    records = engines.records
    workload = records.workload
    if not arms or records.placement.users_set_load or not 0 < records.policy.max_failed_excess < 1:
        return
    variants = workload.variants
    for parts in (
        (variants, 1) if variants else (1,)
    ):  # variants share the requests, then each sends the rest
        for kind in workload.traffic:
            spare = workload.spare_prompts_of(kind)
            # A file is often sorted, and a draft predicts some kinds better: in the order of the file that looks like
            # an arm that warms up.
            prompts = random.Random(records.id).sample(spare, len(spare))
            while prompts and (count := _missing_requests(records, arms, kind, parts)) > 0:
                _send(engines, arms, kind, prompts, count)
                if len(arms) == 1 or parts > 1:
                    break


def _missing_requests(
    records: MeasurementRecords, arms: tuple[str, ...], kind: Traffic, parts: int
) -> int:
    """Return how many more requests of a class each arm needs; 0 or less if it needs none. ``parts``: of the class's
    requests, of which it sends one."""
    workload, burst = records.workload, records.burst_of(kind.name)
    sent = len(records.replies(arms[-1], kind.name))
    if arms == (CANDIDATE,):
        return len(records.replies(BASELINE, kind.name)) - sent
    if sent and len(arms) > 1 and not burst.requests:  # neither arm answers any
        return 0
    timed = min(FIRST_LOOK, workload.repeats) * min(
        workload.requests_of(cell) for cell in workload.cells if cell.traffic == kind.name
    )
    count = burst.requests + burst.elsewhere + timed - 1
    if len(arms) == 1:
        names = (kind.name, *records.other_variants(kind.name))
        count += sum(len(records.replies(arms[-1], name)) for name in names)
    limit = records.policy.max_failed_excess
    unproved = more_to_pass(burst.newly_failed, burst.newly_answered, count, limit, failing=False)
    wave = _wave(workload)
    missing = max((unproved or 0) - 1, _WAVES * wave - sent)
    # While one arm still becomes faster than the other over the last untimed requests, more are needed. Requests in
    # flight at the same time share the machine's state, so their mean counts once.
    last = _changes(records, kind.name)[-_WAVES * wave :]
    means = [statistics.fmean(last[start : start + wave]) for start in range(0, len(last), wave)]
    if missing <= 0 and trend_of(means, _TREND) is not None:
        missing = _WAVES * wave
    return min(math.ceil(missing / parts / wave) * wave, _MOST_REQUESTS - sent)


def _wave(workload: Workload) -> int:
    """Requests that begin together; the next ones begin when all of them have ended, so that no wave meets more
    requests in flight than another."""
    return max(workload.most, _CONCURRENCY)


def _changes(records: MeasurementRecords, traffic: str) -> list[float]:
    """The logarithms of the candidate's times over the baseline's, of the untimed requests that both answered."""
    pairs = zip(
        records.replies(BASELINE, traffic), records.replies(CANDIDATE, traffic), strict=False
    )
    return [math.log(cand / base) for base, cand in times_of_both(pairs)]


def large_gain(records: MeasurementRecords) -> float | None:
    """The candidate's time for an untimed request over the baseline's, where it is so much shorter that rounds of one
    prompt will decide; None elsewhere, and where rounds cannot have one."""
    workload = records.workload
    changes = _changes(records, workload.traffic[0].name)
    if not changes or workload.in_single_prompts() is workload:
        return None
    ratio = math.exp(statistics.fmean(changes))
    return ratio if ratio <= _LARGE else None


def _send(
    engines: ArmEngines,
    arms: tuple[str, ...],
    kind: Traffic,
    prompts: Sequence[Prompt],
    count: int,
) -> None:
    """Send ``count`` requests of a class to each arm, none of which is measured."""
    records = engines.records
    workload, start = records.workload, len(records.replies(arms[-1], kind.name))
    wave, max_tokens = _wave(workload), min(workload.max_tokens, _MAX_TOKENS)
    temperature = max(workload.temperatures)
    chosen = (prompts[number % len(prompts)] for number in range(start, start + count))
    asks = [Ask(BURST, body_of(prompt), max_tokens, temperature, stream=True) for prompt in chosen]
    for arm in arms:
        detail = f"{count} requests of {kind.name} to the {arm}, {wave} at once, untimed"
        engines.progress.step("errors", detail)
        for first in range(0, count, wave):
            sent = asks[first : first + wave]
            answers = engines.ask(arm, sent, attempt=BURST, concurrency=wave, alternatives=0)
            replies = [(answer.error, answer.seconds) for answer in answers]
            records.add_replies(arm, kind.name, replies)
        engines.note_warm(arm, (cell for cell in workload.cells if cell.traffic == kind.name))
