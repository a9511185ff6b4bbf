"""Counts primes; there is nothing of torch in it."""

primes = [n for n in range(2, 20000) if all(n % k for k in range(2, int(n**0.5) + 1))]
print(f"{len(primes)} primes")
