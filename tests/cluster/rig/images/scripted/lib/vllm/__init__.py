"""What a Python program finds of vLLM in the scripted image: its bench client."""
