"""Consumer groups: members that share the shards of topics. The coordinator is a machine on a journal."""
