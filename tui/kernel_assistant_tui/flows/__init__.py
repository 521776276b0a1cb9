"""The actions: coroutines that take the main screen, or plain functions if there is nothing to await."""
