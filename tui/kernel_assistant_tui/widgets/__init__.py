"""What is drawn, by pane."""
