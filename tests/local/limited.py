"""Runs ``mpctl`` on a disk that is full: ``python limited.py BYTES rollback``. No file of this process may grow beyond
BYTES, which the system refuses as it refuses a write without room.
"""

import resource
import sys

from mpctl.cli.main import run

room = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
sys.exit(run(sys.argv[2:]))
