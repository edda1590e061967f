"""Remote read, [MS-MQQP], with the parts of [MS-MQMP] that it needs: readers on other computers.

service.py has the methods, without RPC. qm2qm.py and qmcomm.py have the interfaces. server.py and client.py use them
over rpc/.
"""
