"""The steps that random tasks are made of, by kind."""
