"""Jobs of the session host, as an editor follows them."""
