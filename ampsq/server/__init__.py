"""The embedded server, its supervisor, and the processes of workers."""
