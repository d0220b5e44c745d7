"""Facts of a worker process about itself and its host: memory, identity, resources, stacks, a blocked event loop."""
