"""What limits a run: facts of its files, rules that explain them, and printers."""
