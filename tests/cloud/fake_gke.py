"""A ClusterManager over gRPC on loopback that takes and gives google-cloud-container's own messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.cloud import container_v1 as gke

PREFIX = "/google.container.v1.ClusterManager/"

REQUESTS = {
    "GetCluster": gke.GetClusterRequest,
}


class FakeGke(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One project with one cluster; ``fault`` answers every call with that status instead."""

    def __init__(self) -> None:
        self.fault: tuple[grpc.StatusCode, str] | None = None
        self.cluster = gke.Cluster(
            name="serving",
            endpoint="203.0.113.7",
            master_auth=gke.MasterAuth(cluster_ca_certificate="Q0E="),
        )

    def service(self, details: Any) -> Any:
        method = details.method.removeprefix(PREFIX)
        request = REQUESTS.get(method)
        if request is None:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._answering(getattr(self, method)),
            request_deserializer=request.deserialize,
            response_serializer=lambda reply: type(reply).serialize(reply),
        )

    def _answering(self, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            if self.fault:
                context.abort(*self.fault)
            return method(request, context)

        return answer

    def GetCluster(self, request: Any, context: Any) -> Any:  # noqa: N802  the method's own name
        if request.name != "projects/my-project/locations/us-central1/clusters/serving":
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: {request.name}")
        return self.cluster


@contextmanager
def running(fake: FakeGke) -> Iterator[gke.ClusterManagerClient]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=(fake,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    transport = gke.ClusterManagerClient.get_transport_class("grpc")(channel=channel)
    try:
        yield gke.ClusterManagerClient(transport=transport)
    finally:
        channel.close()
        server.stop(None).wait(5)
