"""The pages, a module for each; `register` of a module adds it to the application."""
