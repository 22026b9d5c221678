"""How much a client may ask for. The same figures are in the OpenAPI document and in docs/service.md."""

from __future__ import annotations

from dataclasses import dataclass

K, BEAM, BATCH = 100, 1024, 1000  # answers, hypotheses, questions of one request
NAME_CHARACTERS = 2000  # of an entity or relation in a request
MATCHES, EDGES = 200, 500  # names of one search, edges of one neighbourhood
ANNOTATOR_CHARACTERS = 64


@dataclass(frozen=True)
class Limits:
    """What the service as a whole bears."""

    body_bytes: int = 1_000_000
    body_seconds: float = 20.0  # until the last byte of a body is there
    header_seconds: float = 20.0  # until the last header is there
    keep_alive_seconds: int = 60  # between two requests; who asks just when it ends finds the connection closed
    queue: int = 256  # pieces of work that wait or are at work
    connections: int = 1024
    shutdown_seconds: int = 30  # that begun requests have to end


def of_a_request() -> dict[str, int]:
    """For a model card."""
    return {"k": K, "beam": BEAM, "batch": BATCH}
