"""The command line of the package, with an import relative to it."""

import argparse

from .training import train

parser = argparse.ArgumentParser(prog="parcel_sorter")
parser.add_argument("--steps", type=int, default=40)
args = parser.parse_args()
train(args.steps)
print(f"{__package__}: {args.steps} steps")
