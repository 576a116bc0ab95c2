"""Programs that run inside an engine, next to it or in its pod; they import nothing of mpctl."""
