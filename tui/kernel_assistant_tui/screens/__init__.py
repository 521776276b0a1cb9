"""The main screen: its panes, its keys, and which actions are possible now."""
