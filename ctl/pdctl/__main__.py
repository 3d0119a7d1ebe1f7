"""`python -m pdctl`."""

from __future__ import annotations

import sys

from pdctl.entry import main

sys.exit(main())
