"""HTTP and WebSocket for clients that hold no credentials of the server, each bound to what it is entitled to."""

from ampsq.gateway.rules import GatewayRules, read_rules
from ampsq.gateway.server import Gateway

__all__ = ["Gateway", "GatewayRules", "read_rules"]
