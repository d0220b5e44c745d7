"""Commands about workflows and their files."""
