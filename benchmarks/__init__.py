"""What the README's figures come from: `benchmarks/run --help`."""
