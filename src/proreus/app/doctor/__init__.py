"""Explain why nodes stay tainted and Services stay pending: `proreus doctor`. It only reads.

`reading` looks, `nodes`, `services`, `manager` and `cloud` judge (pure), `report` prints.
"""
