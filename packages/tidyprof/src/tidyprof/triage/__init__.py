"""The diagnosis of a run: facts from its files, rules that explain them, and printers."""
