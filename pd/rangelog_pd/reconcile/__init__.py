"""Compares the state with the range servers' reports, on the leader. Pure: the driver passes events and acts on the results."""
