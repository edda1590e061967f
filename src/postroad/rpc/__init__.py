"""A DCE/RPC runtime over TCP, server and client ([C706], [MS-RPCE]). The interfaces on top of it live in other rooms."""
