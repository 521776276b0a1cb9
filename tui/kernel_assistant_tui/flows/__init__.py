"""What each action does, one file for each; all are coroutines of the main screen."""
