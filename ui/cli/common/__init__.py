"""Code shared by commands: arguments, errors, progress, output."""
