"""The cases, one module per group; a group runs in a process of its own."""
