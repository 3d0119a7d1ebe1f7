"""The restore of a cluster from its tier: what the bucket has, the plan, and how it is carried out."""
