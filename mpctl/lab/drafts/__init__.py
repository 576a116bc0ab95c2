"""Heads trained from a service's own traffic: the training order, and the card that says what a head is."""
