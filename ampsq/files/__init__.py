"""Definitions as files: YAML, an Artemis ``broker.xml``, a configuration of AMPS."""
