"""The state of each service for others: /metrics and /healthz, rows of a table and of -o json, and in a cluster a
SpeculationStatus and Events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpctl.app.watch.events import WatchEvent, expected_record, reason_of
from mpctl.app.watch.watched import WatchedService
from mpctl.app.watch.watcher import Watcher
from mpctl.json_types import Json
from mpctl.platform.kubernetes.speculation_status import StatusWriter, since
from mpctl.report.record import camel_record
from mpctl.watch.assessment import MEANINGS, Signal, remedy_of
from mpctl.watch.sentinel import Check

_LATE = 5.0  # intervals without a round after which the watch is not healthy
_AGAIN_S = 300.0  # an unchanged status is written again, in case somebody changed or deleted it
_EACH_S = 0.5  # between two writes of unchanged statuses, on average over all services


def metrics(watcher: Watcher) -> str:
    """A Prometheus text exposition."""
    rows = list(watcher.watched.values())
    lines = [
        "# HELP mpctl_watch_rounds_total Rounds in which all services were read.",
        "# TYPE mpctl_watch_rounds_total counter",
        f"mpctl_watch_rounds_total {watcher.rounds}",
    ]
    gauges: dict[str, tuple[str, Callable[[WatchedService], float | None]]] = {
        "mpctl_watch_finding": (
            "1 while something is wrong with the service's speculation.",
            lambda w: float(w.assessment.finding),
        ),
        "mpctl_watch_pays": (
            "1 while speculation pays, 0 while it costs more than it gains; absent where unknown.",
            lambda w: None if w.assessment.pays is None else float(w.assessment.pays),
        ),
        "mpctl_watch_blind": (
            "1 while counters of the service cannot be read.",
            lambda w: float(w.assessment.signal is Signal.BLIND),
        ),
        "mpctl_watch_tokens_per_step": ("Tokens per step of the last window.", _tokens),
        "mpctl_watch_slowdown_ratio": (
            "Time per token over the reference's at the same load.",
            _slowdown,
        ),
        "mpctl_watch_answers_right": (
            "1 while sentinels are answered right, 0 while they are not; absent where unknown.",
            lambda w: {"True": 1.0, "False": 0.0}.get(answers_condition(w)["status"]),
        ),
        "mpctl_watch_sentinel_requests": (
            "Requests of sentinels that this process sent.",
            lambda w: float(w.guard.sent),
        ),
        "mpctl_watch_sentinels_wrong": (
            "Wrong answers to sentinels.",
            lambda w: float(w.guard.wrong),
        ),
        "mpctl_watch_actions": (
            "Operations that this process began for the service.",
            lambda w: float(w.actions),
        ),
    }
    for name, (help_, read) in gauges.items():
        lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(w)} {value:g}" for w in rows if (value := read(w)) is not None]
    lines += ["# HELP mpctl_watch_signal The service's signal.", "# TYPE mpctl_watch_signal gauge"]
    lines += [f"mpctl_watch_signal{_labels(w, signal=w.assessment.signal.value)} 1" for w in rows]
    return "\n".join(lines) + "\n"


def health(watcher: Watcher, idle_s: float) -> tuple[int, str]:
    """200 while rounds go on; ``idle_s``: seconds since the last one ended."""
    if idle_s > _LATE * watcher.policy.interval_s:
        return 503, f"no round for {idle_s:.0f} s\n"
    return 200, f"{watcher.rounds} rounds, {len(watcher.watched)} services\n"


def record(watched: WatchedService) -> Json:
    """The state of a service as a JSON object; conditions as kstatus reads them."""
    assessment, reference = watched.assessment, watched.facts.reference
    return {
        "namespace": watched.session.namespace,
        "service": watched.session.name,
        "signal": assessment.signal.value,
        "message": assessment.text,
        "finding": assessment.finding,
        "pays": assessment.pays,
        "reference": reference.operation if reference is not None else None,
        "figures": camel_record(assessment.figures),
        "expected": expected_record(assessment.expected),
        "detectsInSeconds": assessment.detects_in_s,
        "decision": watched.decision.act.value,
        "reason": watched.decision.reason,
        "sentinelRequests": watched.guard.sent,
        "trafficChanged": list(watched.traffic_changes),
        "knownBad": [finding.id for finding in watched.facts.known_bad],
        "command": remedy_of(assessment.signal, *watched.key) or None,
        "conditions": conditions(watched),
    }


def conditions(watched: WatchedService) -> list[dict[str, str]]:
    """Return the conditions as kstatus reads them. Ready: speculation performs as measured; Unknown while no assessment
    is possible. Reconciling: an operation of the watch is running. Stalled: a finding that only a person or the policy
    can end."""
    assessment, acts = watched.assessment, watched.acting is not None and not watched.acting.done()
    ready = (
        "Unknown"
        if assessment.signal is Signal.BLIND
        else "False"
        if assessment.finding or acts
        else "True"
    )
    statuses = {
        "Ready": ready,
        "Reconciling": str(acts),
        "Stalled": str(assessment.finding and not acts),
    }
    reason, message = assessment.signal.value, MEANINGS[assessment.signal].text
    if assessment.signal is Signal.FELL_BACK or (
        assessment.signal is Signal.HEALTHY and not watched.facts.speculates
    ):
        message = (
            assessment.text
        )  # a service without speculation performs as nothing that was measured
    rows = [
        {"type": name, "status": status, "reason": reason, "message": message}
        for name, status in statuses.items()
    ]
    cache = watched.state.cache
    status, reason, message = {
        None: ("Unknown", "NotCompared", cache.text),
        True: ("True", "Kept", cache.text),
        False: ("False", "CacheLost", MEANINGS[Signal.CACHE_LOST].text),
    }[cache.kept]
    of_cache = {"type": "CacheKept", "status": status, "reason": reason, "message": message}
    return [*rows, answers_condition(watched), of_cache]


_ANSWERS = {
    None: (
        "Unknown",
        "NotAsked",
        "no sentinel was sent yet; users' load allows one from time to time",
    ),
    Check.RIGHT: ("True", "Right", "the last sentinel was answered as recorded"),
    Check.ONCE: ("True", "WrongOnce", ""),
    Check.UNKNOWN: ("Unknown", "NotAnswered", ""),
    Check.UNVERIFIED: ("Unknown", "Unverified", ""),
}


def answers_condition(watched: WatchedService) -> dict[str, str]:
    """Return the condition AnswersRight: whether answers are still those that were recorded."""
    guard, signal = watched.guard, watched.assessment.signal
    status, reason, message = _ANSWERS.get(guard.last) or _ANSWERS[Check.UNKNOWN]
    if guard.finding is not None:
        status, reason, message = "False", signal.value, MEANINGS[signal].text
    return {
        "type": "AnswersRight",
        "status": status,
        "reason": reason,
        "message": message or guard.text or reason,
    }


def table_rows(watched: Sequence[WatchedService]) -> list[list[str]]:
    """Header and one row per service."""
    header = [
        "NAMESPACE",
        "NAME",
        "SIGNAL",
        "PAYS",
        "TOKENS/STEP",
        "MS/TOKEN",
        "LOAD",
        "DECISION",
        "MESSAGE",
    ]
    return [header, *(_row(w) for w in sorted(watched, key=lambda w: w.key))]


def _row(watched: WatchedService) -> list[str]:
    assessment, figures, expected = (
        watched.assessment,
        watched.assessment.figures,
        watched.assessment.expected,
    )
    pays = {True: "yes", False: "no", None: "-"}[assessment.pays]
    return [
        *(watched.session.namespace, watched.session.name, assessment.signal.value, pays),
        _against(_tokens(watched), expected.tokens_per_step if expected is not None else None, 2),
        _against(
            figures.time_per_token_ms if figures is not None else None,
            expected.time_per_token_ms if expected is not None else None,
            1,
        ),
        "-" if figures is None or figures.batch is None else f"{figures.batch:.1f}",
        watched.decision.act.value,
        assessment.text,
    ]


def _against(value: float | None, measured: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if measured is None else f" ({measured:.{digits}f})")


def _labels(watched: WatchedService, **labels: str) -> str:
    pairs = {
        "namespace": watched.session.namespace,
        "inference_service": watched.session.name,
        **labels,
    }
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})  # of the text exposition
    written = (f'{name}="{value.translate(escapes)}"' for name, value in pairs.items())
    return "{" + ",".join(written) + "}"


def _tokens(watched: WatchedService) -> float | None:
    return (
        watched.assessment.figures.tokens_per_step
        if watched.assessment.figures is not None
        else None
    )


def _slowdown(watched: WatchedService) -> float | None:
    figures, expected = watched.assessment.figures, watched.assessment.expected
    if (
        figures is None
        or expected is None
        or not figures.time_per_token_ms
        or not expected.time_per_token_ms
    ):
        return None
    return figures.time_per_token_ms / expected.time_per_token_ms


class Publisher:
    """Writes a status when its signal, its conditions or its decision changed. What cannot be written is reported and
    written with a later round: nothing that the watch does depends on it."""

    def __init__(
        self,
        writer: StatusWriter,
        monotonic: Callable[[], float],
        time: Callable[[], str],
        warn: Callable[[str], None],
    ) -> None:
        self._writer, self._monotonic, self._time, self._warn = writer, monotonic, time, warn
        self._written: dict[tuple[str, str], tuple[float, Json]] = {}

    def publish(self, services: Sequence[WatchedService]) -> None:
        """Write what changed since the last round."""
        again = max(_AGAIN_S, _EACH_S * len(services))
        for watched in services:
            written_at, before = self._written.get(watched.key, (None, {}))
            assessment, facts = watched.assessment, watched.facts
            fields: Json = {
                "signal": assessment.signal.value,
                "message": assessment.text,
                "pays": assessment.pays,
                "decision": watched.decision.act.value,
                "spec": facts.live.spec if facts.live is not None else None,
                "reference": facts.reference.operation if facts.reference is not None else None,
                "conditions": since(
                    conditions(watched), before.get("conditions", ()), self._time()
                ),
            }
            status = {name: value for name, value in fields.items() if value is not None}
            same = {k: v for k, v in status.items() if k != "message"} == {
                k: v for k, v in before.items() if k != "message"
            }
            now = self._monotonic()
            if same and written_at is not None and now - written_at < again:
                continue
            try:
                if same:
                    self._writer.forget(*watched.key)
                self._writer.write(*watched.key, status)
            except Exception as error:  # noqa: BLE001  an odd answer on one object ends no watch of the others
                self._writer.forget(*watched.key)
                self._warn(f"status of {'/'.join(watched.key)} not written: {reason_of(error)}")
                continue
            self._written[watched.key] = (now, status)

    def tell(self, event: WatchEvent) -> None:
        """Create a Kubernetes Event."""
        if event.service == "-":  # of the watch itself
            return
        text = event.line.partition(": ")[2].partition(": ")[2]
        try:
            self._writer.tell(
                event.namespace, event.service, event.reason, text, event.at, warning=event.finding
            )
        except Exception as error:  # noqa: BLE001  nothing that the watch does depends on an Event
            self._warn(
                f"event {event.reason} of {event.namespace}/{event.service} not written: {reason_of(error)}"
            )
