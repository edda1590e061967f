"""An independent client of remote read, made of impacket's DCE/RPC, and how tests drive it."""
