"""`rangelog demo`: all parts of rangelog on real data, checked by four independent ways of reading it back."""
