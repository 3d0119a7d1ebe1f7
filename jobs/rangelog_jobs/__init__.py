"""Jobs over streams on Spark: `rangelog-spark JOB …`, `python -m rangelog_jobs JOB …`, or functions that take a session.

Each job is a module of this package: it registers itself with the command (`jobs.job`), and has a function that a program calls
with a Spark session of its own. Importing this package imports neither pyspark nor a job.

    from rangelog.spark import create_session
    from rangelog_jobs.audit import audit_streams

    found = audit_streams(create_session(), ClusterAddress("127.0.0.1:7100"), prefix="flights")
"""

from __future__ import annotations

from rangelog_jobs.cluster import ClusterAddress

__all__ = ["ClusterAddress"]
