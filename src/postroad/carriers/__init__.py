"""What all carriers share: messages that come in, messages on their way out, and who hears of it."""
