"""Single messages: browsed, explained, their history, dead letters put back."""
