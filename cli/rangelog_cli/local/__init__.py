"""A whole cluster on this machine: its plan, its processes, and `rangelog local`, which supervises them."""
