"""`pdctl doctor …`: one file per verb."""
