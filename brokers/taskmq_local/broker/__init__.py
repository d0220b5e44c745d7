"""`local://` as a broker: publishing, consuming and browsing over the SQLite file."""
