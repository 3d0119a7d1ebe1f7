"""The files of a member: journal, term and vote, snapshot; and the interface to the disk."""
