"""Where sites, routing links, queue managers and public queues come from."""
