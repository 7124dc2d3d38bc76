"""Administration of an instance: checking, rebuilding, diagnosing, measuring, roles."""
