"""What each command does, with plain arguments; `cli.py` only parses them."""
