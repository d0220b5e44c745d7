"""Large results in a bucket: `s3://BUCKET/PREFIX`, on Amazon S3 or a compatible server.

    PREFIX/2026112205/LABEL-DATA    LABEL and DATA are hashes; the hour (UTC) is when the object may be deleted

Workers delete expired objects when they store others. If they may not delete, use a lifecycle rule of the bucket.

Credentials come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`) or from the
machine, never from the URL.
"""

from taskmq_s3.blobs import S3Blobs
from taskmq_s3.url import open_blobs

__all__ = ["S3Blobs", "open_blobs"]
