"""The directives of the placement driver, one per file, and the runner that repeats each until it is done."""
