"""What is not collected with the others here."""

# It is about a run that has ended, and the Makefile names it then.
collect_ignore = ["test_short_run.py"]
