"""The web console: a process of its own that shows queue managers to operators in a browser.

It knows a manager only by its HTTP API, with the credentials of the person who looks. So no page can do more than its
user may, every change is in the manager's audit log, and nothing here can slow a manager down but its calls.
"""
