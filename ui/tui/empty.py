"""What stands where no exchange is: what to do so that some come."""

from __future__ import annotations

from .safe import visible
from .session import Session


def nothing_yet(session: Session) -> str:
    """For a proxy that nobody has spoken to yet, or a capture without a request."""
    if session.live and not session.grows and session.capture.live:
        return f"No exchange so far; it is still being read.\n\n{visible(str(session.capture.path))}"
    if session.grows:
        return (
            f"Listening, 0 exchanges so far.\n\n{session.title}\n\n"
            "Set your client's bootstrap.servers to the proxy's address.\n"
            "Answers that name brokers are rewritten, so clients stay on the proxy.\n"
            "Plain TCP only, unless the proxy was given certificates: a client that\n"
            "speaks TLS to a plain port shows up as not Kafka."
        )
    return f"No exchange in this capture.\n\n{visible(str(session.capture.path))}"
