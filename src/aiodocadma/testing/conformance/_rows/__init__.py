"""The cases, one module for each section of the rules."""

MODULES = (
    "codes",
    "notification",
    "tasks",
    "contexts",
    "maps",
    "bufs",
    "failures",
    "devices",
    "samples",
)
