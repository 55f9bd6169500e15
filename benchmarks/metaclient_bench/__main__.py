"""``python -m benchmarks``."""

from metaclient_bench.cli import main

if __name__ == "__main__":
    main()
