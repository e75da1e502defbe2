"""Vision towers, which families share."""
