"""Load balancers of Octavia: what they should be, and the next thing to do. Pure so far.

Nothing here makes a call yet, and the provider offers no load balancers.
"""
