"""Prometheus itself, which scrapes every pod of the cluster as a PodMonitor would have it scraped.

Its build has no service discovery of Kubernetes, so it asks the rig for its targets over HTTP. Not there: the
operator, alerting, and the rules of ``manifests/monitoring``, which name a service.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .binaries import PROMETHEUS, find
from .metrics_api import PORT, TARGETS

if TYPE_CHECKING:
    from .cluster import Cluster

_NAME, _LISTENS = "prometheus", 9090
_SCRAPE_S = 5


class Prometheus:
    """The Prometheus of one cluster, at ``url``; it ends with the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._program = find(PROMETHEUS)[_NAME]
        self.url = f"http://{cluster.slot.host}:{_LISTENS}"

    def start(self) -> None:
        """Returns when it answers."""
        cluster, scratch = self._cluster, self._cluster.folder / _NAME
        scratch.mkdir()
        discovery = {
            "url": f"https://{cluster.slot.host}:{PORT}{TARGETS}",
            "refresh_interval": f"{_SCRAPE_S}s",
            "tls_config": {"insecure_skip_verify": True},
        }
        dropped = {"action": "drop", "source_labels": ["__name__"], "regex": ".+_created"}
        job = {
            "job_name": "pods",
            "http_sd_configs": [discovery],
            "metric_relabel_configs": [dropped],
        }
        timing = {"scrape_interval": f"{_SCRAPE_S}s", "scrape_timeout": f"{_SCRAPE_S}s"}
        (scratch / "prometheus.yaml").write_text(
            json.dumps({"global": timing, "scrape_configs": [job]})
        )
        cluster.processes.start(
            _NAME,
            [
                self._program,
                f"--config.file={scratch / 'prometheus.yaml'}",
                f"--storage.tsdb.path={scratch / 'data'}",
                f"--web.listen-address={cluster.slot.host}:{_LISTENS}",
            ],
        )
        from .cluster import answers

        cluster.processes.wait(_NAME, lambda: answers(f"{self.url}/-/ready"))
