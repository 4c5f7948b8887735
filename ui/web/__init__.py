"""The screen in a web browser: a server, and a process for each open page."""
