"""Options by subject, each declared once."""
