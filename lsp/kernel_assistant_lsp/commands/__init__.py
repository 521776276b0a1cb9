"""The commands of `workspace/executeCommand`: functions `(context, argument)`, which `dispatch` finds by name."""
