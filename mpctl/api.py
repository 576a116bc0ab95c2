"""mpctl for programs: plan, preflight, bench, rollout and rollback as five functions.

Each takes a service, a frozen request whose fields are the options of the command of the same name, and a
:class:`Place`; it returns the value that the command prints. Nothing is read from settings files or ``MPCTL_``
variables except ``MPCTL_STATE_DIR``. Nothing prompts: ``rollout`` and ``rollback`` change a service only with
``yes=True``. Messages go to the logger ``mpctl``, or to ``report``, which is called with each line.

Every function raises :class:`~mpctl.errors.MpctlError`: InputError for a request, service or place that cannot be used,
Refused, Conflict, NotPermitted and so on, with a ``message`` and a ``hint`` that names a command. Ctrl-C raises
Cancelled. Call them from one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from mpctl import annex, commands
from mpctl.app.bench import measure
from mpctl.app.bench.measure import BenchMeasurement
from mpctl.app.bench_requests import BenchRequest
from mpctl.app.change.source import FileSource
from mpctl.app.console import Unattended
from mpctl.app.inspect import preflight as checks
from mpctl.app.inspect.preflight import PreflightAnswer
from mpctl.app.inspect_requests import ChangeRequest
from mpctl.app.operate import rollback as rollbacks
from mpctl.app.operate import rollout as rollouts
from mpctl.app.operate.outcome import OperationOutcome
from mpctl.app.option import File, Whole, is_enumeration
from mpctl.app.requests import (
    DryRun,
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SpeculationRequest,
    TrafficRequest,
    require_server,
)
from mpctl.app.session.base import Place, Session, Source
from mpctl.app.session.open import open_session
from mpctl.errors import (
    Cancelled,
    Conflict,
    GateRejected,
    InputError,
    MpctlError,
    NotPermitted,
    Refused,
    RolledBack,
    Undecided,
)

if TYPE_CHECKING:
    from mpctl.lab.plan.result import ServicePlan
    from mpctl.lab.requests import PlanRequest

__all__ = [
    "BenchMeasurement",
    "BenchRequest",
    "Cancelled",
    "ChangeRequest",
    "Conflict",
    "DryRun",
    "GateRejected",
    "InputError",
    "MeasurementRequest",
    "MpctlError",
    "NotPermitted",
    "OperationOutcome",
    "Place",
    "PreflightAnswer",
    "Refused",
    "RollbackRequest",
    "RolledBack",
    "RolloutRequest",
    "SpeculationRequest",
    "TrafficRequest",
    "Undecided",
    "bench",
    "plan",
    "preflight",
    "rollback",
    "rollout",
]

Report = Callable[[str], None]

_LOGGER = logging.getLogger("mpctl")
_PLATFORMS = ("kubernetes", "local")


def plan(
    service: str,
    request: PlanRequest,
    *,
    place: Place,
    file: str | None = None,
    report: Report | None = None,
) -> ServicePlan:
    """Predict what speculation would bring; nothing is started. ``service``: a service, or with a slash a model of a
    hub that nobody serves; ``file``: a manifest that is read instead of a running service. The request is
    ``mpctl.lab.requests.PlanRequest``.

    Raises:
        InputError: the request cannot be used, or mpctl/lab is not part of this installation.
    """
    run = annex.need("plan")
    _require_valid(request)
    with ExitStack() as sessions:

        def open_source(name: str, manifest: str | None) -> Source:
            if manifest is not None:
                return FileSource(manifest, name)
            return sessions.enter_context(_opened(name, place, report))

        result: ServicePlan = run(service, file, request, open_source)
    return result


def preflight(
    service: str,
    request: ChangeRequest,
    *,
    place: Place,
    file: str | None = None,
    report: Report | None = None,
) -> PreflightAnswer:
    """Check a change without making it. ``file``: a manifest that is read instead of a running service. Findings are in
    ``change.findings``; ``change.require_allowed()`` raises Refused where one forbids the change.

    Raises:
        InputError: the request or the manifest cannot be used.
    """
    _require_valid(request)
    if file is not None:
        return checks.preflight(FileSource(file, service), request)
    with _opened(service, place, report) as session:
        return checks.preflight(session, request)


def bench(
    service: str | None, request: BenchRequest, *, place: Place, report: Report | None = None
) -> BenchMeasurement:
    """Measure a service, alone or against an engine that speculates; what serves is not changed. ``service``: None for
    servers by ``url``. The measurement is written to ``request.run_file``, by default below the working directory;
    ``verdict`` is None for one arm. It takes minutes.

    Raises:
        InputError: an arm is not found, or the request cannot be used.
        Conflict: the same measurement runs in another process.
        MpctlError: an arm cannot be measured; the same call continues it.
    """
    _require_valid(request)
    return measure.bench(place, _console(place, report), replace(request, service=service))


def rollout(
    service: str,
    request: RolloutRequest,
    *,
    place: Place,
    yes: bool = False,
    report: Report | None = None,
) -> OperationOutcome:
    """Measure the change, promote it if the gate says so, and restore the service otherwise. Killed at any point, the
    same call continues. It takes minutes; all times in the request are in seconds.

    The outcome's ``error`` is None after a promotion; a rejection, an undecided verdict or a step that failed is a
    GateRejected, Undecided or RolledBack there, and is not raised. A dry run has a ``preview``.

    Raises:
        InputError: the request cannot be used, or ``yes`` is needed.
        Refused: the preflight forbids the change, or nothing fits.
        Conflict: another operation or another writer changes the service.
    """
    _require_valid(request)
    require_server(request.dry_run, place.platform)
    with _opened(service, place, report, yes=yes) as session:
        return rollouts.run(session, request)


def rollback(
    service: str,
    request: RollbackRequest = RollbackRequest(),  # noqa: B008  it is frozen
    *,
    place: Place,
    yes: bool = False,
    report: Report | None = None,
) -> OperationOutcome:
    """Undo what is unfinished, otherwise restore the revision before or the one requested. Killed at any point, the
    same call continues. ``note`` says why nothing was to be done; ``error`` is as in :func:`rollout`.

    Raises:
        InputError: there is no such revision, or ``yes`` is needed.
        Conflict: another operation or another writer changes the service.
    """
    _require_valid(request)
    require_server(request.dry_run, place.platform)
    with _opened(service, place, report, yes=yes) as session:
        return rollbacks.run(session, request)


def _require_valid(request: Any) -> None:
    """Refuse a request with a value that no option could set. What the command line builds is valid.

    Raises:
        InputError: the message names the field, the hint is the help of its option.
    """
    for member in fields(request):
        value, declared = getattr(request, member.name), member.metadata.get("option")
        if "group" in member.metadata:
            _require_valid(value)
        elif declared is not None and (value != member.default or is_enumeration(declared.type)):
            repeats = isinstance(member.default, tuple)
            if isinstance(value, tuple) != repeats or not _allows(declared.type, value):
                raise InputError(
                    f"{value!r} cannot be used",
                    field=f"{type(request).__name__}.{member.name}",
                    hint=f"{'a tuple: ' * repeats}{declared.help}",
                )


def _allows(kind: Any, value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    if isinstance(kind, tuple):
        return all(word in kind for word in values)
    if isinstance(kind, Whole):
        return all(
            isinstance(number, int) and kind.least <= number <= (kind.most or number)
            for number in values
        )
    if is_enumeration(kind):
        return isinstance(value, kind)
    if hasattr(kind, "parse") and not isinstance(kind, File):
        try:
            kind.parse(",".join(map(str, values)))
        except ValueError:
            return False
    return True


class _Program(Unattended):
    """A program that has agreed beforehand, or not."""

    def __init__(self, report: Report | None, *, yes: bool) -> None:
        super().__init__(report or _LOGGER.info)
        self._report, self._yes = report, yes

    def warn(self, text: str) -> None:
        """Report a warning."""
        if self._report is None:
            _LOGGER.warning(text)
        else:
            super().warn(text)

    def confirm(self, question: str, *, typed: str = "") -> None:
        """Report what is agreed to.

        Raises:
            InputError: it was not agreed to.
        """
        lines = [line for line in question.splitlines() if not line.endswith("?")]
        if not self._yes:
            raise InputError(f"needs yes=True: {lines[0]}", hint="nothing was changed")
        for line in lines:
            self.note(line)


def _console(place: Place, report: Report | None, *, yes: bool = False) -> _Program:
    """The console of a call, whose messages name commands for the same place.

    Raises:
        InputError: the place names no platform.
    """
    if place.platform not in _PLATFORMS:
        raise InputError(
            f"{place.platform!r} is not one of {', '.join(_PLATFORMS)}", field="Place.platform"
        )
    options = (
        ("--platform", place.platform),
        ("--context", place.context),
        ("--kubeconfig", place.kubeconfig),
        ("--as", place.as_user),
    )
    typed = tuple((flag, value) for flag, value in options if value is not None)
    commands.set_reader(commands.Reader(find_options=lambda: typed))
    return _Program(report, yes=yes)


@contextmanager
def _opened(
    service: str, place: Place, report: Report | None, *, yes: bool = False
) -> Iterator[Session]:
    session = open_session(place, _console(place, report, yes=yes), service)
    try:
        yield session
    finally:
        session.close()
