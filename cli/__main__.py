"""``python -m ampsq.cli``: the same as the program ``ampsq``."""

from ampsq.cli.main import main

if __name__ == "__main__":
    main()
