"""Times and checks a candidate in the quick tier, which steers the search, and in the full tier, which is what users
see."""
