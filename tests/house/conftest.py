"""Collection of the tests here: files that are no tests of their own."""

# It is about a run that has ended, and the Makefile names it then.
collect_ignore = ["test_short_run.py"]
