"""The command line: one call and one print each."""
