"""Programs that run inside a pod of the engine's image, started by path: nothing here imports mpctl."""
