"""The core over an engine: tasks and the clock."""
