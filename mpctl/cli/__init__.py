"""The command line. Commands parse and hand over; nothing here decides, and nothing heavy is imported until it is
used."""
