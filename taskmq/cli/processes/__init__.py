"""Commands that run until they are stopped: worker, beat, scheduler, dev, demo; and the probe for their health."""
