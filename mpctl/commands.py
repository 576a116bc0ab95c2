"""Commands as messages print them: complete, so that a reader can paste them into the next shell.

Everything that prints a command builds it here. The result names the service, its namespace, and what was chosen for
this call alone (``--context``, ``--kubeconfig``, ``--as``, ``--platform``). Settings files hold for the next shell,
too, and are not repeated; a variable of the environment is, since it may have been typed before this one command.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

# They read no service and no cluster.
_ANYWHERE = frozenset({"completion", "connect", "drafts", "gate", "help", "methods", "version"})
_FILE = ("-f", "--file", "--values")
_KUBECTL = ("--context", "--kubeconfig", "--as")  # kubectl's options of the same names


class Reader:
    """The way in which the reader of the messages calls mpctl.

    ``program``: ``mpctl``, or ``kubectl mpctl`` for a plugin of kubectl. ``find_options``: option and value that choose
    the platform and the cluster, as typed. ``find_namespace``: the namespace of a command without ``-n``; empty where
    each must name its own.
    """

    def __init__(
        self,
        program: str = "mpctl",
        find_options: Callable[[], tuple[tuple[str, str], ...]] = tuple,
        find_namespace: Callable[[], str] = str,
    ) -> None:
        self.program, self.find_options, self._find_namespace = (
            program,
            find_options,
            find_namespace,
        )

    @cached_property
    def namespace(self) -> str:
        """The namespace of a command without ``-n``."""
        return self._find_namespace()

    def options(self, namespace: str | None) -> list[tuple[str, str]]:
        """Options that lead to a namespace from the reader's next shell."""
        place = [("-n", namespace)] if namespace and namespace != self.namespace else []
        return [*place, *self.find_options()]


_reader = Reader()


def set_reader(reader: Reader) -> None:
    """Print the commands of this call of the program for ``reader``."""
    global _reader  # noqa: PLW0603  one call has one reader
    _reader = reader


def name_every_namespace() -> None:
    """Name the namespace in every command: the messages of this call are read elsewhere, such as Events of a pod."""
    set_reader(Reader(_reader.program, _reader.find_options))


def line(*words: str | int, namespace: str | None = None) -> str:
    """Return a command of mpctl; ``words`` come after the program's name. ``namespace``: of the service in it."""
    arguments = [str(word) for word in words if word != ""]
    if arguments[0] == "local":
        arguments += [
            word for pair in _reader.options(namespace) if pair[0] == "-n" for word in pair
        ]
    elif arguments[0] not in _ANYWHERE and not any(flag in arguments for flag in _FILE):
        arguments += [word for pair in _reader.options(namespace) for word in pair]
    return f"{_reader.program} {joined(arguments)}"


class OnService:
    """Something that names a service, whose commands messages print."""

    name: str
    namespace: str

    def command(self, verb: str, *options: str | int) -> str:
        """A command on the service, as messages print it."""
        return line(verb, self.name, *options, namespace=self.namespace)


def kubectl(*words: str, namespace: str | None = None) -> str:
    """Return a command of kubectl for the same cluster."""
    chosen = [pair for pair in _reader.options(namespace) if pair[0] == "-n" or pair[0] in _KUBECTL]
    return joined(["kubectl", *words, *(word for pair in chosen for word in pair)])


def joined(words: list[str]) -> str:
    """The words as a line that a shell reads."""
    import shlex

    return shlex.join(words)
