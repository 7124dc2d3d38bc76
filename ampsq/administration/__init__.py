"""What administrators ask of an instance and see of it."""
