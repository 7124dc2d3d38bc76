"""Connections: finding the server, sending calls, repeating them where that is harmless, failing over."""
