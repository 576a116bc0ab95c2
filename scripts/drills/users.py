"""The users of a drill, and the throughput that they get."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mpctl import bounded
from mpctl.experiment.prompt_files import body_of
from mpctl.platform import http
from mpctl.watch.reference import Reference
from scripts.drills.rig import Rig

_ANSWER_S = 180.0
_PAUSE_S = 0.5  # after a request that failed, as a client that tries again
_ANSWER_TOKENS = 128.0  # where the reference does not say how long answers were


@dataclass(frozen=True, slots=True)
class Answer:
    """One request of the users; times in seconds of one clock, ``error`` empty where it succeeded."""

    began: float
    ended: float
    tokens: int
    error: str = ""


class Load(Protocol):
    """The users of a drill, as :class:`Users`."""

    @property
    def answers(self) -> tuple[Answer, ...]: ...
    def send(self, prompts: Sequence[str]) -> None: ...
    def ask(self, prompt: str) -> Answer: ...
    def pause(self) -> None: ...
    def close(self) -> None: ...


class Users:
    """``clients`` of a chat endpoint. They wait until :meth:`send` gives them prompts; close them to end them.

    Every request has a cache salt of its own, as in a measurement: repeated prompts must not be answered from the
    engine's prefix cache. Answers are streamed as there, too: an engine that hands out each token takes longer for a
    step on few cores, and would look faster than measured without.
    """

    def __init__(
        self, url: str, model: str, token: str | None, *, clients: int, max_tokens: int
    ) -> None:
        self._url, self._model, self._max_tokens = f"{url}/v1/chat/completions", model, max_tokens
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._answers: list[Answer] = []
        self._prompts: tuple[str, ...] = ()
        self._busy, self._ended = 0, False
        self._number = itertools.count()
        self._salt = f"drill-{time.time_ns()}"
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All requests that ended."""
        with self._changed:
            return tuple(self._answers)

    def send(self, prompts: Sequence[str]) -> None:
        """Send these from now on, in turn."""
        with self._changed:
            self._prompts = tuple(prompts)
            self._changed.notify_all()

    def ask(self, prompt: str) -> Answer:
        """Send one request that is none of the users', and wait for its answer."""
        return self._ask(prompt, next(self._number))

    def pause(self) -> None:
        """Send nothing, and wait for the answers under way."""
        with self._changed:
            self._prompts = ()
            self._changed.wait_for(lambda: not self._busy, timeout=_ANSWER_S)

    def close(self) -> None:
        """End the clients after their answers."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=_ANSWER_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._prompts or self._ended)
                if self._ended:
                    return
                number = next(self._number)
                prompt = self._prompts[number % len(self._prompts)]
                self._busy += 1
            answer = self._ask(prompt, number)
            with self._changed:
                self._answers.append(answer)
                self._busy -= 1
                self._changed.notify_all()
            if answer.error:
                time.sleep(_PAUSE_S)

    def _ask(self, prompt: str, number: int) -> Answer:
        body = {
            **body_of(prompt),
            "model": self._model,
            "max_tokens": self._max_tokens,
            "temperature": 0,
            "cache_salt": f"{self._salt}-{number}",
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began, tokens, error = time.monotonic(), 0, ""
        try:
            answer = http.request(
                "POST",
                self._url,
                json=body,
                headers=self._headers,
                seconds=_ANSWER_S,
                socket=http.SAME_USER,
            )
            if answer.status == 200:
                tokens = _tokens(answer.text)
            else:
                error = f"status {answer.status}"
        except http.NoAnswer as failure:
            error = failure.message
        except (ValueError, KeyError, TypeError):
            error = "no usage in the answer"
        return Answer(began, time.monotonic(), tokens, error)


def _tokens(events: str) -> int:
    """Tokens of a streamed answer by its last event, which is its usage.

    Raises:
        NoAnswer: it ends with an error of the engine.
        ValueError, KeyError, TypeError: it ends with neither.
    """
    *_, last = (line for line in events.splitlines() if line.startswith("data: {"))
    event = bounded.loads(last.removeprefix("data: "))
    if "error" in event:
        raise http.NoAnswer(f"error {event['error']['code']} in place of an answer")
    return int(event["usage"]["completion_tokens"])


def throughput(answers: Iterable[Answer], start: float, end: float) -> float | None:
    """Tokens per second between two moments; None where no time lies between them."""
    if end <= start:
        return None
    parts = (a.tokens * _overlap(a, start, end) for a in answers if not a.error)
    return math.fsum(parts) / (end - start)


def _overlap(answer: Answer, start: float, end: float) -> float:
    """Share of an answer's time that lies between two moments."""
    took = max(answer.ended - answer.began, 1e-6)
    return max(min(answer.ended, end) - max(answer.began, start), 0.0) / took


def users_of(rig: Rig, reference: Reference) -> Load:
    """Return users with the load and the answers that the gate measured."""
    clients = max(1, round(max(band.batch for band in reference.bands)))
    longest = (
        max((band.answer_tokens or 0.0 for band in reference.bands), default=0.0) or _ANSWER_TOKENS
    )
    return Users(rig.url, rig.model, rig.token, clients=clients, max_tokens=round(1.5 * longest))
