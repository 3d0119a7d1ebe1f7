"""What a member keeps on disk: journal, term and vote, snapshot, and the one seam to the disk."""
