"""Which elements of its operands an operator reads; `rules.reads` is the way in."""
