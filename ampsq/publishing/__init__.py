"""Publishing: plain, or guaranteed with a store, a session and proof of what is persisted."""
