"""`pdctl stream show`, `pdctl locate`, `pdctl verify`: what the placement driver says, beside what servers and objects hold."""
