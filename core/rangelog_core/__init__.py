"""The common parts of client and servers: the model (records, batches, limits, errors), the frame, and below `net` the
connections.

Every name here is public: servers and commands import it. No module imports structlog, click, pydantic or the S3 library,
and no module outside `net` does I/O.
"""
