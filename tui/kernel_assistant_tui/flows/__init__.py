"""The implementations of the actions. Each is a function that takes the main screen; it is a coroutine if it has to
wait for something."""
