"""An annex: predict what speculation brings, search the fastest setting, and train drafts."""
