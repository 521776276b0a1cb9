"""The model of the package, run by llama.cpp in a process of its own."""
