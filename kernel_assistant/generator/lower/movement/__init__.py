"""Rules of operators that move elements."""
