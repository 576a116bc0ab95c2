"""The program of a training pod; it imports nothing of mpctl."""
