"""Values and errors that need nothing else of ours: names, intervals, sizes, bookmarks, addresses, message types."""
