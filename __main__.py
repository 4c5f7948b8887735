"""``python -m barnabas``: the same as the ``barnabas`` command."""

from .ui.cli import main

if __name__ == "__main__":
    main()
