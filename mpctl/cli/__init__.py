"""What a person types. Commands parse and hand over; nothing here decides, and nothing heavy is imported until it is
used."""
