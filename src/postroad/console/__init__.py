"""The web console: a separate process that shows queue managers to operators in a browser.

It uses only the HTTP API of a manager, with the credentials of the person who looks. So no page can do more than its
user may, the manager's audit log has every change, and only calls of the API can slow the manager down.
"""
