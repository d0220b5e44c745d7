"""The features of taskmq, each with the servers that it needs and a check of it on a running app.

`shop` defines tasks, `stored` and `sent` check the features of both lanes, and `table` lists them for docs/lanes.md.
"""
