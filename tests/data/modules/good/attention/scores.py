def scores(query, key):
    return query @ key.transpose(-1, -2)
