"""Remote read: readers on other computers, by [MS-MQQP] with the parts of [MS-MQMP] that it needs, and by [MS-MQRR].

service.py has what both protocols do, without RPC. mqqp.py has the methods of the first, over the interfaces in
qm2qm.py and qmcomm.py; mqrr.py those of the second, over remoteread.py. server.py and client.py use them over rpc/.
"""
