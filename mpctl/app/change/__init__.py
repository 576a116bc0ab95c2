"""A change to a service: resolve its target, select a draft, build the spec, stage the draft, check the whole."""

from mpctl.app.change.change import Change, prepare

__all__ = ["Change", "prepare"]
