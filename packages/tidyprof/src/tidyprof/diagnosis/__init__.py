"""What limits this run? Numbers of the analyses in, a likely cause with its evidence out."""
