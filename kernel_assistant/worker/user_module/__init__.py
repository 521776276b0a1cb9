"""The user's module: import its file, build its class, make its inputs."""
