"""`python -m pdctl`."""

from __future__ import annotations

from pdctl.main import main

main()
