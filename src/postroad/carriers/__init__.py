"""What all carriers share: messages that arrive, messages on their way out, and who is informed."""
