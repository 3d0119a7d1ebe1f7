"""The demo's second scene: the flights by eight producers through a topic, a group and a table."""
