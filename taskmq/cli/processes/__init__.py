"""Commands that run until stopped (worker, beat, scheduler, server, dev, demo), and their health probe."""
