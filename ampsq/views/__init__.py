"""Views: rows computed from messages, kept in step with them."""
