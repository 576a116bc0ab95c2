"""An action repeated in the background of a test."""

import threading
from abc import ABC, abstractmethod


class Meanwhile(ABC):
    """``look`` again and again, ``pause_s`` apart, as long as the ``with`` lasts."""

    pause_s = 0.15

    def __init__(self):
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(self.pause_s):
            self.look()

    @abstractmethod
    def look(self):
        """Do it once."""
