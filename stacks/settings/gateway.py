"""The gateway to the engines: domain, certificate, authentication, and the namespaces that may have routes."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.yaml_lines import FilePosition, Node

NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
DOMAIN = r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"


@dataclass(frozen=True)
class Tls:
    """The gateway's certificate: in a given Secret of the gateway's namespace, or from a ClusterIssuer."""

    secret: str
    issuer: str | None


@dataclass(frozen=True)
class Jwt:
    """Issuer, keys and audiences of the callers' tokens."""

    issuer: str
    jwks: str
    audiences: tuple[str, ...]


@dataclass(frozen=True)
class Gateway:
    """``api_keys``: a Secret of the gateway's namespace with a key for each client. ``replicas``: proxies."""

    domain: str | None = None
    tls: Tls | None = None
    api_keys: str | None = None
    jwt: Jwt | None = None
    namespaces: tuple[str, ...] = ()
    public: bool = False
    replicas: int = 2
    place: FilePosition | None = None

    @property
    def authenticated(self) -> bool:
        """True when a request without credentials is refused."""
        return self.api_keys is not None or self.jwt is not None


def read_gateway(node: Node, *, public: bool) -> Gateway:
    """Read ``serving.gateway``.

    Raises:
        InputError: the gateway would face the internet without a certificate or without authentication.
    """
    auth = node.node("auth")
    gateway = Gateway(
        domain=node.maybe("domain", pattern=DOMAIN, what="a domain such as models.mycompany.com"),
        tls=read_tls(node.node("tls")) if node.has("tls") else None,
        api_keys=auth.maybe("api_keys", pattern=NAME, what="the name of a Secret"),
        jwt=read_jwt(auth.node("jwt")) if auth.has("jwt") else None,
        namespaces=node.texts("namespaces"),
        public=public,
        replicas=node.number("replicas", 2, low=1, high=20),
        place=node.place,
    )
    if gateway.tls and not gateway.domain:
        raise node.error("domain", "a certificate needs a domain", "set serving.gateway.domain")
    if gateway.api_keys and gateway.jwt:
        raise auth.error("jwt", "one kind of authentication: api_keys or jwt")
    if public and not (gateway.tls and gateway.authenticated):
        raise node.error(
            "auth" if gateway.tls else "tls",
            "serving.public_gateway faces the internet, and engines have neither certificates nor authentication",
            "set serving.gateway.domain, .tls and .auth, or public_gateway: false",
        )
    auth.done()
    node.done()
    return gateway


def read_tls(node: Node) -> Tls:
    """A given Secret, or one that cert-manager fills."""
    if node.has("secret") == node.has("issuer"):
        raise node.error(
            "secret", "exactly one of secret and issuer", "name a TLS Secret, or a ClusterIssuer"
        )
    issuer = node.maybe("issuer", pattern=NAME, what="the name of a ClusterIssuer")
    tls = Tls(node.text("secret", "gateway-tls", pattern=NAME, what="the name of a Secret"), issuer)
    node.done()
    return tls


def read_jwt(node: Node) -> Jwt:
    """Issuer, keys and audiences; a token without the right audience is for somebody else."""
    url = {"pattern": r"https://\S+", "what": "an https address"}
    jwt = Jwt(node.text("issuer", **url), node.text("jwks", **url), node.texts("audiences"))
    if not jwt.audiences:
        raise node.error(
            "audiences", "required: without one every token of the issuer would be accepted"
        )
    node.done()
    return jwt
