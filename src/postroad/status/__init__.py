"""What people are told of queues, sessions and messages on their way, whichever protocol carries them."""
