"""Large results in a bucket: `s3://BUCKET/PREFIX`, on Amazon S3 or whatever speaks as it does.

    PREFIX/2026112205/LABEL-DATA    both are hashes; before them the hour in UTC after which it may go

What has had its time is taken away by the workers that put others, and by a lifecycle rule of the bucket where they
may not delete.

Credentials are those of the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, or what
the machine was given), never of the URL.
"""

from taskmq_s3.blobs import S3Blobs
from taskmq_s3.url import open_blobs

__all__ = ["S3Blobs", "open_blobs"]
