"""The rules of Raft: elections, appends, commits, snapshots, proposals. They use `network` and `files`, never the reverse."""
