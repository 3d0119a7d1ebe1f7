"""What members of a cluster and pdctl import, loaded once by the process that forks: no thread and no connection."""

from __future__ import annotations

import importlib
import os
import threading

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's library begins threads while it is loaded

for name in (
    "pdctl.main",
    "pdctl.inspection.verify_objects",
    "pdctl.upgrade.gathering",
    "pdctl.views",
    "rangelog_cli.main",
    "rangelog_cli.servers",
    "rangelog_cli.local.command",
    "rangelog_pd.main",
    "rangelog_pd.runtime",
    "rangelog_server.main",
    "rangelog_server.runtime",
    "rangelog_broker.main",
    "rangelog_broker.runtime",
    "rangelog_broker.rest.server",
    "rangelog_page.serving",
    "rangelog_tier.file_store",
    "rangelog_tier.opening",
    "rangelog_tier.parquet",
    "grpc_health.v1.health",
    "grpc_reflection.v1alpha.reflection",
):
    importlib.import_module(name)

assert threading.active_count() == 1, "a module began a thread: it would be lost in each fork"
