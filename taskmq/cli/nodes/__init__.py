"""Commands about the machines that jobs run on."""
