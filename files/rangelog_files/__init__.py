"""Event files: logs in a directory or an object store, without servers. Needs the extra `files` (fastavro)."""
