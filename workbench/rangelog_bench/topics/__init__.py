"""The measurements of topics, groups, journals and tables (`rangelog bench --topics`)."""
