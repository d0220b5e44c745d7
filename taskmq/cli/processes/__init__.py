"""Commands that run until they are stopped: worker, beat, dev, demo; and the probe for their health."""
