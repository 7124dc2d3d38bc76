"""The state of the world: the records of topics with a key."""
