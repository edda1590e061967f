"""Remote read, [MS-MQQP], and what it needs of [MS-MQMP]: readers on other computers.

service.py has the methods, without RPC; qm2qm.py and qmcomm.py the interfaces; server.py and client.py use them over
rpc/.
"""
