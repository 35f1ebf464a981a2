"""Show what the manager would do now: `proreus plan`. It only reads.

`reading` looks, `nodes`, `routes` and `services` decide with the controllers' own plans (pure),
`applied` is what a node will be then, `report` prints.
"""
