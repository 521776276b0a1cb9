"""Opening a task: builds and traces the module, and checks what is needed for judging candidates."""
