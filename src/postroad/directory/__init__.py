"""The sources of sites, routing links, queue managers and public queues."""
