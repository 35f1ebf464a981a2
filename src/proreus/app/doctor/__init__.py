"""Explain why nodes stay tainted and Services stay pending: `proreus doctor`. It only reads.

`reading` looks, `nodes`, `services`, `manager`, `cloud` and others judge (pure), `report` prints.
"""
