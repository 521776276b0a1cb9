"""What each action does: coroutines of the main screen, plain functions where nothing has to be waited for."""
