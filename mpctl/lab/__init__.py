"""An annex: predict what speculation brings."""
