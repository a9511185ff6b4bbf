"""Diagnose a run with facts from its files and rules that explain the facts."""
