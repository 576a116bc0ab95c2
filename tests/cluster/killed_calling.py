"""``mpctl`` without a measurement (``tests.cluster.matrix``) that ends with SIGKILL before or after its N-th request to
the API server, port-forwards not counted.

``python -m tests.cluster.killed_calling N before|after rollout ...``; 0 never, then the number of requests is printed.
"""

import atexit
import os
import runpy
import signal
import sys

from mpctl.platform.kubernetes.api.api_client import Client

limit, moment = int(sys.argv[1]), sys.argv[2]
begun = []


def dying(request):
    """A request at which the command may end."""

    def call(self, *arguments):
        begun.append(arguments)
        here = len(begun) == limit
        if here and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = request(self, *arguments)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return call


Client._send, Client._stream = dying(Client._send), dying(Client._stream)
atexit.register(lambda: sys.stderr.write(f"requests: {len(begun)}\n"))
sys.argv = [sys.argv[0], "0", *sys.argv[3:]]
runpy.run_module("tests.cluster.matrix")
