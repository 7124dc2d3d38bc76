"""Reads with plain commands, which change nothing."""
