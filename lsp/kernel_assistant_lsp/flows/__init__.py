"""Code that several commands share: arguments, settings, drafts of inputs, installed libraries, questions."""
