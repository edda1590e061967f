"""A DCE/RPC runtime over TCP, server and client ([C706], [MS-RPCE]). Interfaces on top of it live in other rooms."""
