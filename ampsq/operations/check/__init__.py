"""Check of an instance's data, and repair from log and journal."""
