"""What lies in the project: classes, what is known of them, changes."""
