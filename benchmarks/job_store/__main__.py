import sys

from benchmarks.job_store.command import main

if __name__ == "__main__":
    sys.exit(main())
