"""What speculation would bring before it is tried: a roofline with the KV pool, fitted to published measurements."""
