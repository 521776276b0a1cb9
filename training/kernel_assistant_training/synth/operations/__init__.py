"""The steps that random tasks are made of; a module for each kind of step."""
