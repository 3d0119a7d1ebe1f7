"""The verbs of a broker, as functions of plain values: every door calls these, and none of them knows a door."""
