"""Remote read, [MS-MQQP], and what it needs of [MS-MQMP]: readers on other computers.

service.py is what the methods do, without RPC; qm2qm.py and qmcomm.py are the interfaces; server.py and client.py speak
them over rpc/.
"""
