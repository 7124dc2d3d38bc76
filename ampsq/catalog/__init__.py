"""The definitions that an instance has now: applied, compared, removed, and checked against each other."""
