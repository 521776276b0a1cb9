"""The commands of `workspace/executeCommand`: functions with the parameters `(context, argument)`. `dispatch` finds
them by name."""
