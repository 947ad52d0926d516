"""ZooKeeper as a broker needs it: one session (session.py), on kazoo (kazoo_session.py); the znodes' forms
(layout.py).
"""
