"""The generator's data: expressions, sizes, schedules, and a graph as text."""
