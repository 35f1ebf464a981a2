"""AWS as its documentation has it: moto, behind a server that corrects what moto answers wrongly.

    world.py        the state: moto's backends, and what they do not keep
    server.py       HTTP: decodes by botocore's models, encodes, serves the metadata and control ports
    faults.py       throttling, delays, failures, and how late things are seen
    limits.py       what holds for every EC2 operation: DryRun, filters, pages, ids
    instances.py    names and addresses, who is visible, topology
    routes.py       one interface per target, blackholes, limits
    groups.py       security groups that are still in use
    elb.py          classic load balancers
    elbv2.py        network load balancers
    policy.py       what the IAM policy of the provider does not allow
    process.py      starts it in a process of its own, and speaks to its control port

A correction is a function under `@corrects(service, operation)`; it asks moto by `world.moto` and
says in its docstring which document it keeps to.
"""
