"""A DCE/RPC runtime over TCP, server and client ([C706], [MS-RPCE]). Other rooms define the interfaces."""
