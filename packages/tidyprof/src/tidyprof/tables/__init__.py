"""The one contract of all readers and analyses, and how tables that keep it are built."""
