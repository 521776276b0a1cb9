"""The main screen: its panes, its keys, and the actions that are possible now."""
