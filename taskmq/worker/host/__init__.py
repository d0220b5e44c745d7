"""What a worker process knows about itself and its host: memory, identity, resources, stacks, a blocked loop."""
