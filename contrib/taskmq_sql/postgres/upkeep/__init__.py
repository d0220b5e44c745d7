"""What a database needs beside its jobs: days that are made ahead and dropped, and a look at what is wrong."""
