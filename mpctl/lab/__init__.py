"""An annex: predict what speculation brings, and train drafts."""
