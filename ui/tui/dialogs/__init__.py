"""Dialogs, the command prompt, the help screen and the text editor."""
