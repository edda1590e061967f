"""A DCE/RPC runtime over TCP, server and client ([C706], [MS-RPCE]). The interfaces are in other rooms."""
