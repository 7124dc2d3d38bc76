"""Requests to the server and their replies: keys, scripts, commands. No other room names a key."""
