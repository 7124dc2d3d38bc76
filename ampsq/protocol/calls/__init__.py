"""One typed function for each script: it makes the call and reads the reply."""
