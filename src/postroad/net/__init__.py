"""Listeners with limits, an HTTP server, and the spelling of hosts and ports. Nothing of MSMQ's protocols is here."""
