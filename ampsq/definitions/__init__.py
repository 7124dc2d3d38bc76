"""What users define: topics, queues, views, actions, destinations; and how it is checked, applied and removed."""
