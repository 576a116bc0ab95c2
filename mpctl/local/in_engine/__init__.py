"""Programs that run inside the engine's own environment, started by path: nothing here imports mpctl.

The files have a directory of their own because Python puts a script's directory first on its path, where a module
named like one of the standard library's would be found instead.
"""
