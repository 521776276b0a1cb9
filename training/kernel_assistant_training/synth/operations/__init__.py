"""The steps that random tasks are made of. A step is a function that adds operators to the graph and returns the new
value; there is a module for each kind of step."""
