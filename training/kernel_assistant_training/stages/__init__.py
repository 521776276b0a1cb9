"""The stages of training that train, evaluate or export a model: a module for each command, and the modules that the
stages share."""
