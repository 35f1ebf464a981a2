"""What the data path of the provider `local` does and costs: `python -m benchmarks.local`."""
