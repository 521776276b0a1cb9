"""The commands of `workspace/executeCommand`: a file each, with `run(context, argument)`."""
