"""Reading topics: replay, bookmarks, live subscriptions, conflation, limits of slow readers, retention."""
