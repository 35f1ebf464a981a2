"""Several clouds in one manager: whose a node or a Service is, and what each cloud may see of them.

Each cloud has controllers, caches of answers, quotas and a breaker of its own, as if it had a
manager of its own; what it may not touch, its controllers do not see. What no single cloud is
responsible for has controllers beside them (`undecided`).
"""
