"""`rangelog demo`: the whole idea on real data, checked by four independent ways of reading it back."""
