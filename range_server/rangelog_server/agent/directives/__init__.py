"""The directives of the placement driver, one a file, and the runner that repeats each until it is done."""
