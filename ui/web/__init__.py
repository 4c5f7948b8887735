"""The screen in a web browser: a server of pages, and a process of its own for each page that is open."""
