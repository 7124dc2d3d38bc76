"""Definitions: queues, topics, views, actions and destinations, with the checks that each makes by itself."""
