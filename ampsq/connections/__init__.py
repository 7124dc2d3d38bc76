"""Where the server is, the connections to it, and what becomes of them."""
