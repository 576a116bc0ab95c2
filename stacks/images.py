"""Replace the registries of images in Kubernetes YAML: ``scripts/mirror-images``, which Helm runs on what it rendered.

Charts name images under a hundred different values, in arguments of operators and in JSON inside ConfigMaps; in what
was rendered an image looks the same everywhere. Text outside of images stays byte for byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from stacks.settings.mirror import REGISTRIES, Mirror, from_arguments

_PATH = r"[a-z0-9][a-z0-9._/-]*[a-z0-9]"
_VERSION = r"(?::[A-Za-z0-9_][\w.-]*)?(?:@sha256:[0-9a-f]{64})?"
_HOSTS = "|".join(re.escape(name) for name in REGISTRIES)
# With its registry anywhere but in a URL; without one in a field called image, of YAML or of JSON.
_NAMED = re.compile(rf"(?<![\w./@-])(?:{_HOSTS})/{_PATH}{_VERSION}")
_QUOTE = r"""(?:\\?["'])?"""
_FIELD = re.compile(
    rf"(?P<field>{_QUOTE}\bimage{_QUOTE}\s*:\s*{_QUOTE})(?P<image>(?![\w-]+\.[\w.-]+/){_PATH}:[A-Za-z0-9_][\w.-]*)"
)


def rewrite(text: str, mirror: Mirror) -> str:
    """The text with every image from the mirror.

    Raises:
        ValueError: digests are required and an image has none.
    """
    text = _FIELD.sub(lambda match: match["field"] + mirror.image(match["image"]), text)
    return _NAMED.sub(lambda match: mirror.image(match[0]), text)


def main(arguments: Sequence[str]) -> int:
    """Rewrite standard input to standard output."""
    try:
        sys.stdout.write(rewrite(sys.stdin.read(), from_arguments(arguments)))
    except ValueError as error:
        sys.stderr.write(f"error: {error}\nhint: add it to mirror.digests in the environment\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
