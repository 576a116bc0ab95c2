"""Plan a change before anything is started: can it run, does it fit, what will it bring."""
