"""What has happened: figures and alerts."""
